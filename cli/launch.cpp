// `bilevel launch`: several processes of a command on this machine, where no launcher is at hand.

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/distributed/rank_place.h"
#include "bilevel/fields/fields.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

using Clock = std::chrono::steady_clock;

// What the others have, once one has failed, to find out and to say so; then they are asked to end, then
// ended.
constexpr std::chrono::seconds until_asked(5), until_ended(10);

// A folder for this user alone, where the ranks meet; it goes with the launcher.
class MeetingFolder {
 public:
  MeetingFolder() : path_((std::filesystem::temp_directory_path() / "bilevel-launch-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw std::runtime_error(
          fmt::format("{}: cannot make a folder in which the ranks meet: {}", path_, std::strerror(errno)));
    }
  }
  ~MeetingFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Rank {
  pid_t process = -1;  // -1 = it has ended
  int words = -1;      // what it prints, but for rank 0
  std::string line = {};
};

// Signals that are passed on to the ranks, once each.
volatile std::sig_atomic_t received = 0;
void note_signal(int number) { received = number; }

class PassedOnSignals {
 public:
  PassedOnSignals() {
    struct ::sigaction action {};
    action.sa_handler = note_signal;
    ::sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < numbers.size(); ++i) ::sigaction(numbers[i], &action, &before_[i]);
  }
  ~PassedOnSignals() {
    for (size_t i = 0; i < numbers.size(); ++i) ::sigaction(numbers[i], &before_[i], nullptr);
  }
  PassedOnSignals(const PassedOnSignals&) = delete;
  PassedOnSignals& operator=(const PassedOnSignals&) = delete;

 private:
  static constexpr std::array<int, 3> numbers = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct ::sigaction, 3> before_{};
};

class Launch {
 public:
  Launch(int size, std::vector<std::string> words) : size_(size), words_(std::move(words)) {
    words_.insert(words_.begin(), "bilevel");
  }

  int run() {
    const PassedOnSignals signals;
    for (int rank = 0; rank < size_; ++rank) start(rank);
    while (alive() > 0) {
      pass_on_signal();
      show_words(50);
      reap();
      end_the_others();
    }
    while (show_words(0)) {
    }
    return exit_code_;
  }

 private:
  void start(int rank) {
    std::array<int, 2> pipe = {-1, -1};
    if (rank > 0 && ::pipe2(pipe.data(), O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
    std::vector<char*> arguments;
    for (std::string& word : words_) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::vector<std::pair<std::string, std::string>> variables = {
        {"RANK", fmt::format("{}", rank)},
        {"WORLD_SIZE", fmt::format("{}", size_)},
        {"LOCAL_RANK", fmt::format("{}", rank)},
        {"LOCAL_WORLD_SIZE", fmt::format("{}", size_)},
        {rendezvous_variable, folder_.path()}};
    const pid_t launcher = ::getpid(), child = ::fork();
    if (child < 0) {
      end_all(SIGKILL);
      throw std::runtime_error(fmt::format("cannot start process {}: {}", rank, std::strerror(errno)));
    }
    if (child == 0) {
      ::setpgid(0, 0);  // a Ctrl-C comes by the launcher, once
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (::getppid() != launcher) ::_exit(1);
      for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_DFL);
      for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
      if (rank > 0) {
        const int nothing = ::open("/dev/null", O_RDONLY);
        ::dup2(nothing, STDIN_FILENO);
        ::dup2(pipe[1], STDOUT_FILENO);
        ::dup2(pipe[1], STDERR_FILENO);
      }
      ::execv("/proc/self/exe", arguments.data());
      ::_exit(127);
    }
    if (rank > 0) ::close(pipe[1]);
    ranks_.push_back({.process = child, .words = pipe[0]});
  }

  int64_t alive() const {
    return std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.process > 0; });
  }

  void end_all(int number) const {
    for (const Rank& rank : ranks_) {
      if (rank.process > 0) ::kill(rank.process, number);
    }
  }

  void pass_on_signal() {
    if (received == 0) return;
    const int number = received;
    received = 0;
    end_all(number);
  }

  // Whole lines, so that those of two ranks do not mix.
  bool show_words(int milliseconds) {
    std::vector<::pollfd> polled;
    std::vector<size_t> owners;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].words < 0) continue;
      polled.push_back({.fd = ranks_[i].words, .events = POLLIN, .revents = 0});
      owners.push_back(i);
    }
    if (::poll(polled.data(), polled.size(), milliseconds) <= 0) return false;
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      Rank& rank = ranks_[owners[i]];
      std::array<char, 4096> bytes{};
      const ssize_t count = ::read(rank.words, bytes.data(), bytes.size());
      if (count > 0) rank.line.append(bytes.data(), static_cast<size_t>(count));
      if (count == 0) {
        if (!rank.line.empty()) rank.line += '\n';
        ::close(rank.words);
        rank.words = -1;
      }
      for (size_t end = rank.line.find('\n'); end != std::string::npos; end = rank.line.find('\n')) {
        fmt::print(stderr, "[rank {}] {}\n", owners[i], rank.line.substr(0, end));
        rank.line.erase(0, end + 1);
      }
    }
    return true;
  }

  void reap() {
    for (Rank& rank : ranks_) {
      int status = 0;
      if (rank.process < 0 || ::waitpid(rank.process, &status, WNOHANG) != rank.process) continue;
      rank.process = -1;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (code != success && exit_code_ == success) {
        exit_code_ = code;
        failed_ = Clock::now();
      }
    }
  }

  void end_the_others() {
    if (exit_code_ == success || alive() == 0) return;
    const auto since = Clock::now() - failed_;
    if (since > until_ended) {
      end_all(SIGKILL);
    } else if (since > until_asked && !asked_) {
      asked_ = true;
      end_all(SIGTERM);
      end_all(SIGCONT);
    }
  }

  int size_;
  std::vector<std::string> words_;
  MeetingFolder folder_;
  std::vector<Rank> ranks_;
  int exit_code_ = success;
  Clock::time_point failed_ = {};
  bool asked_ = false;
};

struct LaunchOptions {
  int64_t processes = 2;
  std::vector<std::string> command = {};
  Given given = {};
  static const Fields<LaunchOptions>& fields() {
    static const Fields<LaunchOptions> table = [] {
      Fields<LaunchOptions> f;
      f.add(
           "processes", [](auto& o) -> auto& { return o.processes; }, "number of processes")
          .in(at_least(1, 1024))
          .first();
      f.add(
           "command", [](auto& o) -> auto& { return o.command; }, "command and its options, after --")
          .required()
          .first();
      return f;
    }();
    return table;
  }
};

}  // namespace

void add_launch_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<LaunchOptions>();
  add_command(app,
              {"launch",
               "Run a command in several processes on this machine",
               "Rank 0 prints and keeps the run; the messages of the others appear on stderr, after their\n"
               "rank. If one fails, all end, with the exit code of the first that failed.\n"
               "Examples:\n"
               "  bilevel launch --processes 2 -- solve --problem hyper-cleaning --iterations 50\n"
               "  bilevel launch --processes 4 -- compare --problem ridge --algorithms soba,bsa,ttsa,stocbio",
               {"command"}},
              {OptionsView(*options)}, [options, &exit_code] {
                exit_code = Launch(static_cast<int>(options->processes), options->command).run();
              });
}

}  // namespace bilevel::cli
