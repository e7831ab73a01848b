// What a person who waits sees on a terminal, and what --quiet and --log-level leave of the rest.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "bilevel/data/npy.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What the program writes to a terminal of so many columns.
std::string on_a_terminal(const std::string& arguments, unsigned short columns) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) {
    throw std::runtime_error("cannot open a terminal");
  }
  const int programs_end = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
  ::winsize size{};
  size.ws_row = 24;
  size.ws_col = columns;
  ::ioctl(programs_end, TIOCSWINSZ, &size);
  const std::string command =
      "exec '" + std::string(std::getenv("BILEVEL_PROGRAM")) + "' " + arguments + " >/dev/null";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(programs_end, STDERR_FILENO);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(programs_end);
  std::string text;
  std::array<char, 4096> bytes{};
  for (ssize_t count = 1; count > 0;) {  // an error, once nobody has the other end any more
    count = ::read(terminal, bytes.data(), bytes.size());
    if (count > 0) text.append(bytes.data(), static_cast<size_t>(count));
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ::close(terminal);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
  return text;
}

// Where the longest of the lines that were written over each other ends.
size_t longest_live_line(const std::string& text) {
  const std::string begin = "\r\033[K";
  size_t longest = 0;
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
    at += begin.size();
    longest = std::max(longest, std::min(text.find_first_of("\r\n", at), text.size()) - at);
  }
  return longest;
}

TEST(Progress, TheLiveLineStaysOnOneLine) {
  const TemporaryFolder folder;
  const std::string solve =
      "solve --problem ridge --algorithm aid-cg --outer-rate 0.001 --iterations 100000000 --threads 1 "
      "--budget-seconds 0.5 --out ";
  EXPECT_EQ(longest_live_line(on_a_terminal(solve + folder / "narrow", 30)), 29U);
  EXPECT_GT(longest_live_line(on_a_terminal(solve + folder / "wide", 200)), 60U);
  EXPECT_GT(longest_live_line(on_a_terminal(solve + folder / "unknown", 0)), 60U);
}

TEST(Progress, WarningsAreSaidAsAsked) {
  const TemporaryFolder folder;
  write_npy(folder / "x.npy", at::arange(60, at::kDouble).sin().reshape({20, 3}));
  write_npy(folder / "y.npy", at::arange(20).remainder(2));
  const auto said = [&](const std::string& level) {
    static int runs = 0;
    const Output output = run_program(
        "clean --iterations 1 --inner-steps 1 --final-steps 1 --threads 1 --json --train " +
        folder / "x.npy" + " --train-labels " + folder / "y.npy" + " --valid " + folder / "x.npy" +
        " --valid-labels " + folder / "y.npy" + " --out " + folder / std::to_string(runs++) + " " + level);
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return output.err;
  };
  EXPECT_THAT(said("--quiet"), HasSubstr("warning: the inner problem is far from solved"));
  EXPECT_THAT(said("--log-level error"), IsEmpty());
}

TEST(Progress, AMissingGnuplotIsSaidAsAsked) {
  const TemporaryFolder folder;
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  const std::string small =
      "interact --tasks 4 --clusters 2 --features 3 --iterations 1 --inner-steps 2 --threads 1 --json --out ";
  const Output warned = run_program(small + folder / "warned --quiet");
  const Output silent = run_program(small + folder / "silent --log-level error");
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(warned.exit_code, 0) << warned.err;
  EXPECT_THAT(warned.err, HasSubstr("gnuplot is not installed"));
  EXPECT_EQ(silent.exit_code, 0) << silent.err;
  EXPECT_THAT(silent.err, IsEmpty());
}

}  // namespace
}  // namespace bilevel::test
