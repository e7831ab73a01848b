#include "bilevel/data/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

extern char** environ;

namespace bilevel {
namespace {

constexpr size_t kept_output = 4096;

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& folder) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error(fmt::format("cannot run {}: {}", arguments.at(0), std::strerror(errno)));
  }
  FileActions actions;
  ::posix_spawn_file_actions_addchdir_np(actions.get(), folder.c_str());
  ::posix_spawn_file_actions_addopen(actions.get(), 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(actions.get(), pipe[1], 1);
  ::posix_spawn_file_actions_adddup2(actions.get(), pipe[1], 2);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);

  ProcessResult result;
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, pointers[0], actions.get(), nullptr, pointers.data(), environ);
  ::close(pipe[1]);
  if (error != 0) {
    ::close(pipe[0]);
    result.output_tail = std::strerror(error);
    return result;
  }
  result.found = true;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t got = ::read(pipe[0], buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    result.output_tail.append(buffer.data(), static_cast<size_t>(got));
    if (result.output_tail.size() > kept_output) {
      result.output_tail.erase(0, result.output_tail.size() - kept_output);
    }
  }
  ::close(pipe[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace bilevel
