#pragma once
// The program's own code in a child of the test: a new process would take half a second for LibTorch alone.
// Give it --threads 1, since OpenMP's threads do not survive a fork.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"

namespace bilevel::test {

class Forked {
 public:
  // In this folder, with its stderr in a file there; stdout is dropped.
  Forked(std::vector<std::string> arguments, std::string folder)
      : folder_(std::move(folder)), begin_(std::chrono::steady_clock::now()) {
    arguments.insert(arguments.begin(), "bilevel");
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    std::fflush(stdout);
    std::fflush(stderr);
    child_ = ::fork();
    if (child_ == 0) work(static_cast<int>(arguments.size()), pointers.data());
  }
  Forked(Forked&& other) noexcept
      : folder_(std::move(other.folder_)),
        begin_(other.begin_),
        child_(std::exchange(other.child_, -1)),
        status_(other.status_),
        usage_(other.usage_) {}
  Forked& operator=(Forked&&) = delete;
  Forked(const Forked&) = delete;
  ~Forked() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
  }

  bool ended() {
    if (child_ > 0 && ::wait4(child_, &status_, WNOHANG, &usage_) == child_) child_ = -1;
    return child_ < 0;
  }
  void signal(int number) const {
    if (child_ > 0) ::kill(child_, number);
  }
  double seconds() const {  // since it began
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  double processor_seconds() const {  // once it has ended
    const auto of = [](const ::timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return of(usage_.ru_utime) + of(usage_.ru_stime);
  }
  int status() const { return status_; }  // as waitpid gives it
  const std::string& folder() const { return folder_; }

 private:
  [[noreturn]] void work(int count, char** arguments) const {
    const int in = ::open("/dev/null", O_RDWR),
              error = ::open((folder_ + "/err").c_str(), O_WRONLY | O_CREAT, 0644);
    ::dup2(in, 0);
    ::dup2(in, 1);
    ::dup2(error, 2);
    const ::rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    for (const int number : {SIGINT, SIGTERM}) ::signal(number, SIG_DFL);
    const int code = ::chdir(folder_.c_str()) == 0 ? cli::run_command_line(count, arguments) : 127;
    ::_exit(code);
  }

  std::string folder_;
  std::chrono::steady_clock::time_point begin_;
  ::pid_t child_ = -1;
  int status_ = 0;
  ::rusage usage_{};
};

}  // namespace bilevel::test
