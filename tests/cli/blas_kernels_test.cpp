// The program starts itself again where OpenBLAS fell back to old kernels or OpenMP's threads would spin,
// unless the user chose that, and a run knows which kernels it had.

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "bilevel/run/blas_kernels.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A variable of the environment, for as long as this lives; null = not set.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) const {
    if (value == nullptr) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, value, 1);
    }
  }
  const char* name_;
  std::optional<std::string> before_;
};

class BlasKernelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (blas_kernels().running.empty()) GTEST_SKIP() << "LibTorch runs on another BLAS than OpenBLAS";
    if (blas_kernels().best.empty()) GTEST_SKIP() << "this processor has no better kernels than the oldest";
  }
  static std::string version() { return run_by_shell("--version").out; }

  // The environment of a shell in which nobody has said anything.
  const Variable core_{"OPENBLAS_CORETYPE", nullptr};
  const Variable chosen_{"BILEVEL_CORETYPE", nullptr};
  const TemporaryFolder folder_;
};

TEST_F(BlasKernelsTest, the_program_finds_the_kernels_of_its_processor) {
  const std::string text = version();
  const size_t at = text.find("BLAS kernels ");
  ASSERT_NE(at, std::string::npos) << text;
  const std::string running = text.substr(at + 13, text.find('\n', at) - at - 13);
  EXPECT_FALSE(is_fallback(running, blas_kernels().best)) << text;
  EXPECT_THAT(text, Not(HasSubstr("warning")));
}

TEST_F(BlasKernelsTest, the_users_own_choice_is_left_alone) {
  const Variable own("OPENBLAS_CORETYPE", "Prescott");
  EXPECT_THAT(version(), AllOf(HasSubstr("BLAS kernels Prescott, as set by OPENBLAS_CORETYPE; this processor "
                                         "can run " +
                                         blas_kernels().best + "\n"),
                               Not(HasSubstr("warning"))));
  const Output run = run_by_shell("check --problem quadratic --quiet");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, "");
}

TEST_F(BlasKernelsTest, a_second_start_that_did_not_help_warns_instead_of_trying_again) {
  // What a first start leaves in the environment, if OpenBLAS then ran on Prescott whatever it is asked for.
  const Variable core("OPENBLAS_CORETYPE", "Prescott"), chosen("BILEVEL_CORETYPE", "Prescott");
  const std::string warning =
      "warning: OpenBLAS runs on its Prescott kernels, for older processors than "
      "this one: matrix products are several times slower; set OPENBLAS_CORETYPE=" +
      blas_kernels().best + " and restart the program\n";
  const Output run = run_by_shell("check --problem quadratic --quiet");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, warning);
  EXPECT_THAT(version(), HasSubstr(warning));
  EXPECT_EQ(run_by_shell("check --problem quadratic --log-level error").err, "");
}

TEST_F(BlasKernelsTest, arguments_folder_and_exit_code_survive_the_second_start) {
  const Output wrong = run_by_shell("solve --problem 'no such problem'");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--problem no such problem: choose from"));
}

TEST_F(BlasKernelsTest, a_run_knows_its_kernels_and_one_resumed_on_others_says_so) {
  const std::string run = folder_ / "run";
  const std::string start = "solve --problem ridge --algorithm aid-cg --iterations 3 --quiet --out " + run;
  {
    const Variable own("OPENBLAS_CORETYPE", "Prescott");
    ASSERT_EQ(run_by_shell(start).exit_code, 0);
  }
  json facts = json::parse(read_text(run + "/run.json"));
  EXPECT_EQ(facts.at("machine").at("kernels"), "Prescott");
  EXPECT_THAT(run_by_shell("show " + run).out, HasSubstr("Prescott kernels"));
  EXPECT_EQ(run_by_shell("show " + run + " --json").json().at("machine").at("kernels"), "Prescott");
  ASSERT_EQ(run_by_shell("report " + run + " --out " + (folder_ / "report.html")).exit_code, 0);
  EXPECT_THAT(read_text(folder_ / "report.html"), HasSubstr("<td>Prescott</td>"));

  facts["status"] = "running";  // as a process that was killed leaves it
  std::ofstream(run + "/run.json") << facts.dump();
  const Output resumed = run_by_shell("solve --quiet --resume " + run);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, AllOf(HasSubstr("warning: the BLAS's core type was Prescott and is "),
                                 HasSubstr("bits may differ; OPENBLAS_CORETYPE=Prescott restores them")));
  EXPECT_NE(json::parse(read_text(run + "/run.json")).at("machine").at("kernels"), "Prescott");
}

// GNU's OpenMP prints what it read when it is loaded, once for each start; 300000 is its own number.
std::string last_spin_count() {
  const std::string text = run_by_shell("--version").err, name = "GOMP_SPINCOUNT = '";
  const size_t at = text.rfind(name);
  return at == std::string::npos
             ? ""
             : text.substr(at + name.size(), text.find('\'', at + name.size()) - at - name.size());
}

TEST(WaitingThreads, sleep_soon_unless_the_user_says_otherwise) {
  const Variable display("OMP_DISPLAY_ENV", "VERBOSE"), policy("OMP_WAIT_POLICY", nullptr);
  {
    const Variable own("GOMP_SPINCOUNT", "1234");
    if (last_spin_count().empty()) GTEST_SKIP() << "LibTorch runs on another OpenMP than GNU's";
    EXPECT_EQ(last_spin_count(), "1234");
  }
  const Variable count("GOMP_SPINCOUNT", nullptr);
  EXPECT_EQ(last_spin_count(), "10000");
  const Variable own("OMP_WAIT_POLICY", "PASSIVE");
  EXPECT_EQ(last_spin_count(), "0");
}

}  // namespace
}  // namespace bilevel::test
