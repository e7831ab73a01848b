// What happens where the program cannot print, and what it prints at once where it is interrupted.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include "bilevel/data/npy.h"
#include "bilevel/problems/synthetic_classes.h"
#include "tests/cli/background.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class OutputTest : public ::testing::Test {
 protected:
  // `redirection` of stdout, and perhaps of stderr, as a shell has it.
  Output run(const std::string& arguments, const std::string& redirection) const {
    const std::string command = "cd '" + folder_ / "" + "' && '" + std::getenv("BILEVEL_PROGRAM") + "' " +
                                arguments + " 2>'" + folder_ / "err" + "' " + redirection;
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), "", read_text(folder_ / "err")};
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder_ / name); }
  const TemporaryFolder folder_;
};

const std::string full =
    "bilevel: cannot write to standard output: No space left on device; what was printed is not complete\n";

TEST_F(OutputTest, whatCannotBePrintedIsAFailure) {
  for (const std::string arguments : {"list", "list --json", "--help", "--version", "runs --json",
                                      "check --problem toy --methods cg --inner-steps 2 --quiet"}) {
    SCOPED_TRACE(arguments);
    const Output output = run(arguments, ">/dev/full");
    EXPECT_EQ(output.exit_code, 1);
    EXPECT_EQ(output.err, full);
  }
  const Output closed = run("list", ">&-");
  EXPECT_EQ(closed.exit_code, 1);
  EXPECT_THAT(closed.err, HasSubstr("cannot write to standard output: Bad file descriptor"));
}

// Hours of work, perhaps: its files are there all the same.
TEST_F(OutputTest, aRunEndsWithItsFilesWhereItCannotPrint) {
  const LabelledExamples examples =
      draw_gaussian_classes({.classes = 2, .features = 3, .separation = 2}, 20, 1, "train");
  write_npy(folder_ / "x.npy", examples.features);
  write_npy(folder_ / "y.npy", examples.labels);
  const std::string own =
      " --train x.npy --train-labels y.npy --valid x.npy --valid-labels y.npy --iterations 2 --quiet --out ";
  for (const std::string form : {"", " --json"}) {
    for (const auto& [job, file] :
         {std::pair{"clean" + own, "weights.csv"},
          {"tune" + own, "regularisers.csv"},
          {"solve --problem ridge --iterations 60 --records 60 --quiet --out ", "x.npy"}}) {
      SCOPED_TRACE(job + form);
      const std::string name = std::string("run-") + file + (form.empty() ? "" : "-json");
      const Output output = run(job + name + form, ">/dev/full");
      EXPECT_EQ(output.exit_code, 1);
      EXPECT_THAT(output.err, EndsWith(full));  // after a warning, perhaps
      EXPECT_TRUE(exists(name + "/" + file));
      EXPECT_EQ(nlohmann::json::parse(read_text(folder_ / (name + "/run.json"))).at("status"), "finished");
    }
  }
}

TEST_F(OutputTest, aReaderThatLeftEndsItQuietly) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  ::close(pipe[0]);
  // As this process's own output: a shell need not know the number of a descriptor above 9.
  std::cout.flush();
  const int before = ::dup(STDOUT_FILENO);
  ASSERT_NE(::dup2(pipe[1], STDOUT_FILENO), -1);
  const Output output = run("list", "");
  ASSERT_NE(::dup2(before, STDOUT_FILENO), -1);
  ::close(before);
  ::close(pipe[1]);
  EXPECT_EQ(output.exit_code, 141);
  EXPECT_EQ(output.err, "");
}

TEST_F(OutputTest, aFullStandardErrorDoesNotStopTheWork) {
  const Output output =
      run("solve --problem ridge --iterations 3 --log-level debug --out run", ">out 2>/dev/full");
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_TRUE(exists("run/x.npy"));
  EXPECT_EQ(run("solve --problem nonsense", ">out 2>/dev/full").exit_code, 2);
}

// The step takes much longer than a person waits for an answer.
TEST_F(OutputTest, aSignalIsAcknowledgedBeforeTheStepEnds) {
  Background program(
      "solve --problem ridge --inner-steps 1000000 --iterations 5 --threads 1 --quiet --out '" +
          folder_ / "run" + "'",
      folder_ / "err");
  ASSERT_TRUE(program.wait_until([&] { return exists("run/run.json"); }));
  ::usleep(200'000);  // into the first step
  const auto begin = std::chrono::steady_clock::now();
  program.signal(SIGINT);
  EXPECT_TRUE(program.wait_until([&] { return !read_text(folder_ / "err").empty(); }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  const int status = program.end(SIGINT);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130);
  EXPECT_EQ(read_text(folder_ / "err"),
            "stopping after this step, with the state saved; Ctrl-C again ends at once\n");
}

}  // namespace
}  // namespace bilevel::test
