#pragma once
// The program in the background, to be sent signals.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace bilevel::test {

class Background {
 public:
  explicit Background(const std::string& arguments, const std::string& error_file) {
    const std::string command = "exec '" + std::string(std::getenv("BILEVEL_PROGRAM")) + "' " + arguments +
                                " >/dev/null 2>'" + error_file + "'";
    child_ = ::fork();
    if (child_ == 0) {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
  }
  // The program's own code in a child of the test: a new process takes most of a second for LibTorch alone.
  // One thread must do its work, since OpenMP's do not survive a fork.
  Background(const std::function<int()>& work, const std::string& error_file) {
    child_ = ::fork();
    if (child_ == 0) {
      const int none = ::open("/dev/null", O_RDWR),
                error = ::open(error_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      for (const int number : {0, 1}) ::dup2(none, number);
      ::dup2(error, 2);
      for (const int number : {SIGINT, SIGTERM}) ::signal(number, SIG_DFL);
      ::_exit(work());
    }
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() {
    if (child_ > 0) end(SIGKILL);
  }

  // Whether it came to that, before the process ended by itself.
  bool wait_until(const std::function<bool()>& reached) {
    const auto begin = std::chrono::steady_clock::now();
    while (!reached()) {
      if (ended() || std::chrono::steady_clock::now() - begin > std::chrono::minutes(2)) return false;
      ::usleep(500);
    }
    return !ended();
  }
  pid_t process() const { return child_; }
  void signal(int number) const {
    if (child_ > 0) ::kill(child_, number);
  }
  // The status that waitpid gives.
  int end(int number) {
    if (ended()) return *status_;
    ::kill(child_, number);
    return wait();
  }
  int wait() {
    if (ended()) return *status_;
    int status = -1;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    status_ = status;
    return status;
  }
  int end_when(const std::function<bool()>& reached, int number) {
    wait_until(reached);
    return end(number);
  }

 private:
  bool ended() {
    if (status_) return true;
    int status = 0;
    if (::waitpid(child_, &status, WNOHANG) != child_) return false;
    child_ = -1;
    status_ = status;
    return true;
  }
  pid_t child_ = -1;
  std::optional<int> status_;
};

}  // namespace bilevel::test
