// `bilevel check` as a user runs it: the schema, the promised accuracies, the refusals.

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>

#include "bilevel/data/npy.h"
#include "bilevel/hypergradients/registry.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::map<std::string, json> by_name(const json& report) {
  std::map<std::string, json> rows;
  for (const json& row : report.at("methods")) rows[row.at("name")] = row;
  return rows;
}

json check(const std::string& arguments) {
  const Output output = run_program("check --json " + arguments);
  EXPECT_EQ(output.exit_code, 0) << output.err;
  return output.json();
}

TEST(Check, JsonHasEveryEstimatorAndEveryKey) {
  const json report = check("--problem quadratic");
  EXPECT_EQ(report.at("problem"), "quadratic");
  EXPECT_EQ(report.at("inner_size"), 5);
  EXPECT_EQ(report.at("outer_size"), 5);
  const auto rows = by_name(report);
  for (const char* name :
       {"exact", "one-step", "t1t2", "reverse", "reverse-sqrt", "reverse-binomial", "truncated", "forward",
        "neumann", "cg", "minres", "fixed-point", "nystrom", "general-backward", "general-forward"}) {
    ASSERT_TRUE(rows.count(name)) << name;
    const json& row = rows.at(name);
    for (const char* key : {"error_implicit", "error_unrolled", "cosine_implicit", "bytes_kept", "seconds"}) {
      EXPECT_TRUE(row.at(key).is_number()) << name << " " << key;
    }
    EXPECT_TRUE(row.at("status").is_string());
    for (const char* key : {"inner_gradient", "outer_gradient", "hessian", "cross"}) {
      EXPECT_TRUE(row.at("counts").at(key).is_number_integer()) << name << " " << key;
    }
  }
  EXPECT_EQ(rows.size(), estimator_rows().size());
  EXPECT_LT(rows.at("exact").at("error_implicit"), 1e-8);
  EXPECT_LT(rows.at("cg").at("error_implicit"), 1e-8);
  EXPECT_LT(rows.at("reverse").at("error_unrolled"), 1e-8);
  const int steps = report.at("inner").at("steps");
  EXPECT_EQ(rows.at("reverse").at("counts").at("hessian"), steps - 1);
  EXPECT_EQ(rows.at("reverse").at("counts").at("cross"), steps);
}

TEST(Check, ExactAndCgAreImplicitAndReverseIsUnrolledOnEveryProblem) {
  const std::string few = " --methods exact,cg,reverse,reverse-sqrt,reverse-binomial";
  for (const std::string problem :
       {"ridge", "softmax-regression", "hyper-cleaning", "toy --inner-steps 500"}) {
    SCOPED_TRACE(problem);
    const auto rows = by_name(check("--problem " + problem + few));
    EXPECT_LT(rows.at("exact").at("error_implicit"), 1e-8);
    EXPECT_LT(rows.at("cg").at("error_implicit"), 1e-8);
    EXPECT_LT(rows.at("reverse").at("error_unrolled"), 1e-8);
  }
  for (const std::string problem : {"toy", "toy-interfering", "mlp", "learned-rate", "counterexample"}) {
    SCOPED_TRACE(problem);
    const auto rows = by_name(check("--problem " + problem + few));
    for (const char* name : {"reverse", "reverse-sqrt", "reverse-binomial"}) {
      EXPECT_LT(rows.at(name).at("error_unrolled"), 1e-8) << name;
    }
  }
}

TEST(Check, SweepFallsAtLeastAsFastAsTheTheory) {
  const json report = check("--problem ridge --methods neumann,truncated,cg --sweep K=0..40");
  int compared = 0;
  for (const json& row : report.at("sweep")) {
    const double error = row.at("own_error");
    if (error < 1e-12) continue;
    EXPECT_LE(error, row.at("theory").get<double>() * (1 + 1e-9)) << row.at("name") << " K = " << row.at("K");
    ++compared;
  }
  EXPECT_GT(compared, 2 * 41);  // cg is done after about 20 steps
  EXPECT_EQ(report.at("sweep").size(), 3 * 41);
}

// After 20 steps the inner problem is far from solved: no K makes the error small, and what is called a bound
// says so. The theory of the K terms is about another error, and is beside that one.
TEST(Check, ABoundInASweepHoldsWhereTheInnerProblemIsNotSolved) {
  const json report = check(
      "--problem ridge --inner-steps 20 --methods neumann,fixed-point,truncated,cg,minres,nystrom --sweep "
      "K=0..60");
  for (const json& row : report.at("sweep")) {
    const std::string what = row.at("name").get<std::string>() + ", K = " + row.at("K").dump();
    EXPECT_FALSE(row.contains("bound")) << what;
    EXPECT_EQ(row.at("error_bound_kind"), "rigorous") << what;
    EXPECT_LE(row.at("error_implicit"), row.at("error_bound")) << what;
    if (row.at("theory").is_null()) continue;
    EXPECT_LE(row.at("own_error"), row.at("theory").get<double>() * (1 + 1e-9) + 1e-12) << what;
  }
  const json& last_cg = report.at("sweep").at(3 * 61 + 60);
  EXPECT_EQ(last_cg.at("name"), "cg");
  EXPECT_GT(last_cg.at("error_implicit"), 0.3);
  EXPECT_LT(last_cg.at("theory"), 1e-12);
  EXPECT_LT(last_cg.at("own_error"), 1e-12);
  EXPECT_LT(report.at("sweep").at(61 + 60).at("own_error"), 0.1);  // a series comes there too, in its time
}

TEST(Check, NoBoundStandsBesideAReferenceThatItIsNotAbout) {
  const json report = check("--problem ridge --damping 0.5 --methods cg,reverse --sweep K=0..3");
  for (const char* part : {"methods", "sweep"}) {
    for (const json& row : report.at(part)) EXPECT_TRUE(row.at("error_bound").is_null()) << row;
  }
}

TEST(Check, TheVerdictSaysWhatAMethodIsTrustedFor) {
  const json report = check("--problem ridge --inner-steps 20");
  const auto rows = by_name(report);
  EXPECT_GT(rows.at("reverse").at("error_implicit"), 0.1);
  EXPECT_EQ(rows.at("reverse").at("trusted_for"), json({"steps"}));
  EXPECT_EQ(rows.at("cg").at("trusted_for"), json::array());
  EXPECT_THAT(
      report.at("verdict").at(0).get<std::string>(),
      AllOf(
          HasSubstr("Trustworthy here only for the T = 20 steps taken (relative error up to 1e-06; off by "),
          HasSubstr(" from the answer for the solved inner problem): reverse, ")));
  const json solved = check("--problem ridge --methods exact,reverse,neumann");
  EXPECT_EQ(by_name(solved).at("reverse").at("trusted_for"), json({"solution", "steps"}));
  EXPECT_EQ(solved.at("verdict").at(0),
            "Trustworthy here for the solved inner problem (relative error up to 1e-06): exact, reverse.");
}

TEST(Check, AVacuousBoundIsCalledSo) {
  const Output output = run_program("check --problem hyper-cleaning --inner-steps 2 --methods cg,neumann");
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_THAT(output.out, HasSubstr("vacuous: the bound is longer than the estimate (up to "));
  const json report = check("--problem hyper-cleaning --inner-steps 2 --methods cg");
  EXPECT_EQ(by_name(report).at("cg").at("error_bound_vacuous"), true);
  EXPECT_GT(by_name(report).at("cg").at("error_bound"), 1);
  const json solved = check("--problem ridge --methods cg");
  EXPECT_EQ(by_name(solved).at("cg").at("error_bound_vacuous"), false);
  EXPECT_THAT(run_program("check --problem ridge --methods cg").out, Not(HasSubstr("vacuous")));
}

// The theory of a series is that of its own rate, not of the inner steps'.
TEST(Check, ASeriesAtOneOverTheLargestCurvatureFallsAsTheTheorySays) {
  const json report = check("--problem ridge --methods neumann --linear-rate auto --sweep K=0..40");
  const double largest = report.at("spectrum").at("largest"), smallest = report.at("spectrum").at("smallest");
  EXPECT_NEAR(report.at("series").at("rate").get<double>(), 1 / largest, 1e-9);
  const json& sweep = report.at("sweep");
  ASSERT_EQ(sweep.size(), 41U);
  for (size_t k = 0; k < sweep.size(); ++k) {
    EXPECT_LE(sweep[k].at("error_implicit"), sweep[k].at("error_bound")) << k;
    EXPECT_LE(sweep[k].at("own_error"), sweep[k].at("theory")) << k;
    if (k == 0) continue;
    const double ratio = sweep[k].at("theory").get<double>() / sweep[k - 1].at("theory").get<double>();
    EXPECT_NEAR(ratio, 1 - smallest / largest, 1e-9) << k;
  }
  const Output wrong = run_program("check --problem ridge --linear-rate fast");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--linear-rate fast: must be auto or a number of at least 0"));
}

const char* const small_supernet =
    "--problem supernet --space nasbench201 --operations skip_connect,nor_conv_1x1 --channels 1 --cells 1 "
    "--image-size 8 --images 12 --inner-steps 4 ";

TEST(Check, ASupernetIsComparedWithTheSameCurvatureAtTheIterate) {
  const json report = check(std::string(small_supernet) +
                            "--methods exact,neumann,cg,minres,reverse,truncated --sweep K=0..20");
  EXPECT_EQ(report.at("curvature").at("kind"), "gauss-newton");
  EXPECT_EQ(report.at("curvature").at("damping"), 1.0);
  EXPECT_EQ(report.at("references").at("implicit"), "iterate");
  EXPECT_GT(report.at("inner").at("gradient_norm"), 1e-3);  // far from solved
  // Damping and weight decay, along what Gauss-Newton does not see.
  EXPECT_NEAR(report.at("spectrum").at("smallest").get<double>(), 1.0005, 1e-6);
  const auto rows = by_name(report);
  for (const char* name : {"exact", "cg", "minres"}) {
    EXPECT_LT(rows.at(name).at("error_implicit"), 1e-9) << name;
    EXPECT_TRUE(rows.at(name).at("trusted")) << name;
  }
  EXPECT_LT(rows.at("reverse").at("error_unrolled"), 1e-12);
  EXPECT_THAT(rows.at("neumann").at("why").get<std::string>(),
              HasSubstr("the series is too short at K = 10"));
  double before = std::numeric_limits<double>::infinity();
  for (const json& row : report.at("sweep")) {
    if (row.at("name") == "truncated") {
      EXPECT_TRUE(row.at("theory").is_null());  // the Hessian rules the steps
    }
    if (row.at("name") != "neumann") continue;
    EXPECT_LT(row.at("error_implicit"), before) << row.at("K");
    EXPECT_LE(row.at("error_implicit"), row.at("theory")) << row.at("K");
    EXPECT_EQ(row.at("error_implicit"), row.at("own_error")) << row.at("K");
    before = row.at("error_implicit");
  }
  EXPECT_THAT(report.at("verdict").dump(), HasSubstr("same curvature, the Gauss-Newton matrix + 1 I"));
}

TEST(Check, WhoAsksForASupernetsHessianIsToldOfItsNegativeCurvature) {
  const json report = check(std::string(small_supernet) + "--curvature hessian --methods exact,neumann,cg");
  EXPECT_EQ(report.at("curvature").at("damping"), 0.0);
  EXPECT_LT(report.at("spectrum").at("smallest"), -1e-3);
  EXPECT_EQ(by_name(report).at("cg").at("status"), "negative_curvature");
  EXPECT_THAT(by_name(report).at("neumann").at("why").get<std::string>(), HasSubstr("negative curvature"));
}

TEST(Check, OptionsOfAnotherProblemAreRefused) {
  const Output toy = run_program("check --problem toy --cells 3");
  EXPECT_EQ(toy.exit_code, 2);
  EXPECT_THAT(toy.err, HasSubstr("problem toy does not take --cells: only supernet does"));
  const Output supernet = run_program("check --problem supernet --bias");
  EXPECT_EQ(supernet.exit_code, 2);
  EXPECT_THAT(supernet.err, HasSubstr("problem supernet does not take --bias"));
  const Output empty = run_program("check --problem supernet --images 0");
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("--images 0: must be at least 1"));
  const Output unknown = run_program("check --problem supernets");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("--problem supernets"), HasSubstr("counterexample, supernet")));
}

TEST(Check, CheckpointingGivesTheSameNumbersInLessMemory) {
  const json report = check(
      "--problem mlp --inner-steps 1000 --methods reverse,reverse-sqrt,reverse-binomial,truncated,neumann");
  const auto rows = by_name(report);
  const int64_t state = report.at("inner_size").get<int64_t>() * 8;
  EXPECT_EQ(rows.at("reverse").at("bytes_kept"), 1000 * state);
  EXPECT_LE(rows.at("reverse-sqrt").at("bytes_kept"), 2 * 32 * state);
  EXPECT_LE(rows.at("reverse-binomial").at("bytes_kept"), 11 * state);
  EXPECT_EQ(rows.at("truncated").at("bytes_kept"), 10 * state);
  EXPECT_LE(rows.at("neumann").at("bytes_kept"), 4 * state);
  for (const char* name : {"reverse-sqrt", "reverse-binomial"}) {
    EXPECT_EQ(rows.at(name).at("error_unrolled"), rows.at("reverse").at("error_unrolled")) << name;
    EXPECT_EQ(rows.at(name).at("error_implicit"), rows.at("reverse").at("error_implicit")) << name;
  }
}

TEST(Check, RefusesARateThatCannotWorkAndNamesTheLargestSafeOne) {
  const Output output = run_program("check --problem quadratic --inner-rate 1e6");
  EXPECT_NE(output.exit_code, 0);
  EXPECT_THAT(output.err, HasSubstr("--inner-rate 1e+06"));
  EXPECT_THAT(output.err, HasSubstr("largest safe rate"));
  EXPECT_THAT(output.err, HasSubstr("7.46"));  // 2 / L = 7.46e-05
  EXPECT_THAT(output.out, IsEmpty());
}

TEST(Check, ReportsADivergingLoopOfAProblemWithVaryingCurvature) {
  const Output output = run_program("check --problem ridge --inner-rate 100");
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_THAT(output.err, HasSubstr("largest safe rate"));
  EXPECT_THAT(output.out, IsEmpty());
}

TEST(Check, SavesEveryHypergradientOfAUsersOwnFiles) {
  const TemporaryFolder folder;
  // Ten examples of three features in two classes; the second half serves as validation set.
  const Tensor features = at::arange(60, at::kDouble).mul(0.7).sin().reshape({20, 3});
  const Tensor labels = (features.select(1, 0) > 0).to(at::kLong);
  write_npy(folder / "X.npy", features.slice(0, 0, 10));
  write_npy(folder / "y.npy", labels.slice(0, 0, 10));
  write_npy(folder / "Xv.npy", features.slice(0, 10));
  write_npy(folder / "yv.npy", labels.slice(0, 10));
  const json report = check("--problem hyper-cleaning --train-features '" + folder / "X.npy" +
                            "' --train-labels '" + folder / "y.npy" + "' --valid-features '" +
                            folder / "Xv.npy" + "' --valid-labels '" + folder / "yv.npy" +
                            "' --inner-steps 100 --inner-rate 0.5 --regularization 0.001 --bias --save '" +
                            folder / "saved" + "'");
  EXPECT_EQ(report.at("inner_size"), 2 * 4);  // with the bias column
  EXPECT_EQ(report.at("outer_size"), 10);
  EXPECT_EQ(report.at("inner").at("steps"), 100);
  const Tensor reverse = read_npy(folder / "saved/reverse.npy");
  const Tensor reference = read_npy(folder / "saved/reference-unrolled.npy");
  ASSERT_EQ(reverse.numel(), 10);
  EXPECT_LT((reverse - reference).norm().item<double>(), 1e-12 * reference.norm().item<double>());

  // The same by hand: the paper's gradient descent on the mean of sigmoid(x_i) CE_i + 0.001 |W|^2 from W = 0,
  // and a central difference of the validation loss in the first example's weight.
  const Tensor ones = at::ones({20, 1}, at::kDouble);
  const Tensor z = at::cat({features, ones}, 1);
  const Tensor targets = at::one_hot(labels, 2).to(at::kDouble);
  const auto validation_loss = [&](double first) {
    Tensor weights = at::full({10, 1}, 0.5, at::kDouble);
    weights[0][0] = 1 / (1 + std::exp(-first));
    Tensor w = at::zeros({2, 4}, at::kDouble);
    const Tensor train = z.slice(0, 0, 10);
    for (int t = 0; t < 100; ++t) {
      const Tensor error = (at::softmax(train.mm(w.t()), 1) - targets.slice(0, 0, 10)) * weights;
      w = w - 0.5 * (error.t().mm(train) / 10 + 0.002 * w);
    }
    const Tensor log_probabilities = at::log_softmax(z.slice(0, 10).mm(w.t()), 1);
    return -(log_probabilities * targets.slice(0, 10)).sum().item<double>() / 10;
  };
  const double difference = (validation_loss(1e-5) - validation_loss(-1e-5)) / 2e-5;
  EXPECT_NEAR(reverse[0].item<double>(), difference, 1e-8);
}

TEST(Check, SameSeedSameBitsOtherSeedOtherNumbers) {
  const TemporaryFolder folder;
  for (const char* run : {"a --seed 1", "b --seed 1", "c --seed 2"}) {
    check("--problem mlp --methods reverse,nystrom --save '" + folder / std::string(1, run[0]) + "'" +
          std::string(run + 1));
  }
  for (const char* name : {"reverse.npy", "nystrom.npy"}) {
    EXPECT_EQ(read_text(folder / "a/" + name), read_text(folder / "b/" + name)) << name;
    EXPECT_NE(read_text(folder / "a/" + name), read_text(folder / "c/" + name)) << name;
  }
}

TEST(Check, SinglePrecisionAgreesWithDouble) {
  const TemporaryFolder folder;
  check("--problem ridge --methods reverse,cg --save '" + folder / "double" + "'");
  check("--problem ridge --methods reverse,cg --dtype float --save '" + folder / "float" + "'");
  for (const char* name : {"reverse.npy", "cg.npy"}) {
    const Tensor in_double = read_npy(folder / "double/" + name);
    const Tensor in_float = read_npy(folder / "float/" + name);
    EXPECT_EQ(in_float.scalar_type(), at::kFloat);
    EXPECT_LT((in_float.to(at::kDouble) - in_double).norm().item<double>(),
              1e-4 * in_double.norm().item<double>());
  }
}

TEST(Check, OtherOptimisersUnrollToo) {
  for (const std::string optimizer : {"heavy-ball", "nesterov", "adam"}) {
    SCOPED_TRACE(optimizer);
    const auto rows =
        by_name(check("--problem mlp --inner-steps 30 --inner-rate 0.05 --inner-optimizer " + optimizer +
                      " --inner-schedule cosine --weight-decay 0.01 --methods reverse,forward"));
    EXPECT_LT(rows.at("reverse").at("error_unrolled"), 1e-8);
    EXPECT_LT(rows.at("forward").at("error_unrolled"), 1e-8);
  }
}

TEST(Check, GaussNewtonCurvatureIsComparedWithItsOwnReference) {
  const auto rows =
      by_name(check("--problem mlp --inner-steps 5000 --curvature gauss-newton --damping 0.1 --methods "
                    "exact,cg --inner-rate 0.5"));
  EXPECT_EQ(rows.at("cg").at("status"), "converged");
  EXPECT_LT(std::abs(rows.at("cg").at("error_implicit").get<double>() -
                     rows.at("exact").at("error_implicit").get<double>()),
            1e-8);
}

TEST(Check, BadInputNamesTheOptionTheValueAndAWayOut) {
  const std::pair<const char*, const char*> cases[] = {
      {"--problem nonsense", "nonsense"},
      {"--problem ridge --methods cg,nonsense", "nonsense"},
      {"--problem ridge --terms -1", "--terms -1"},
      {"--problem ridge --truncate -2", "--truncate -2"},
      {"--problem ridge --inner-steps -1", "--inner-steps -1: must be at least 0"},
      {"--problem ridge --inner-rate 0", "--inner-rate 0: must be above 0"},
      {"--problem ridge --inner-optimizer sgdd", "sgdd"},
      {"--problem ridge --inner-schedule sometimes", "sometimes"},
      {"--problem ridge --sweep K=5..2", "K=5..2"},
      {"--problem ridge --sweep 0-40", "K=0..40"},
      {"--problem ridge --dtype half", "half"},
      {"--problem ridge --device tpu", "tpu"},
      {"--problem ridge --damping -1", "--damping -1: must be at least 0"},
      {"--problem ridge --curvature gauss-newton", "gauss-newton"},
      {"--problem ridge --weight-decay -1", "--weight-decay -1: must be at least 0"},
      {"--problem ridge --checkpoint-megabytes 1e-5 --methods reverse-binomial", "byte_budget = 10"},
      {"--problem ridge --bias", "bias"},
      {"--problem learned-rate --inner-rate 0.1", "--inner-rate"},
      {"--problem hyper-cleaning --train-features nowhere.npy --train-labels a --valid-features b "
       "--valid-labels c",
       "nowhere.npy"},
      {"--problem hyper-cleaning --train-features X.npy --valid-features Xv.npy",
       "--train-labels and --valid-labels"},
      {"--problem ridge --methods cg --save /proc/nowhere", "--save /proc/nowhere"},
      {"--problem ridge --trems 3", "--trems"},
      {"", "--problem"},
  };
  for (const auto& [arguments, expected] : cases) {
    SCOPED_TRACE(arguments);
    const Output output = run_program(std::string("check --json ") + arguments);
    EXPECT_TRUE(output.exit_code == 1 || output.exit_code == 2) << output.exit_code;
    EXPECT_THAT(output.err, HasSubstr(expected));
    EXPECT_THAT(output.out, IsEmpty());
  }
}

TEST(Check, ZeroStepsAndZeroTermsAreLegal) {
  const auto rows = by_name(check("--problem ridge --inner-steps 0 --terms 0 --truncate 0"));
  EXPECT_EQ(rows.size(), estimator_rows().size());
  EXPECT_EQ(rows.at("reverse").at("counts").at("hessian"), 0);
  EXPECT_EQ(rows.at("cg").at("counts").at("hessian"), 0);
}

TEST(Program, HelpAndVersionSayWhatAUserNeeds) {
  const Output help = run_program("check --help-all");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* option :
       {"--problem", "--methods", "--terms", "--truncate", "--sweep", "--inner-steps", "--inner-rate",
        "--inner-optimizer", "--seed", "--dtype", "--json", "--save", "--device"}) {
    EXPECT_THAT(help.out, HasSubstr(option));
  }
  const Output version = run_program("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, HasSubstr("bilevel 0."));
  EXPECT_THAT(version.out, HasSubstr("LibTorch"));
  EXPECT_THAT(version.out, HasSubstr("BLAS"));
  const Output list = run_program("list --json");
  EXPECT_EQ(list.json().at("methods").size(), estimator_rows().size());
  EXPECT_EQ(run_program("").exit_code, 2);
  const Output unknown = run_program("chek");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err,
              ::testing::AllOf(HasSubstr("'chek' is unknown: choose from "), HasSubstr(" check, ")));
}

TEST(Check, TableEndsWithAVerdict) {
  const Output output = run_program("check --problem ridge");
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_THAT(output.out, HasSubstr("Trustworthy here for the solved inner problem"));
  EXPECT_THAT(output.out, HasSubstr("cheapest of them is cg"));
  EXPECT_THAT(output.out, HasSubstr("neumann, fixed-point: the series is too short at K = 10"));
  const Output unsolved = run_program("check --problem toy");
  EXPECT_THAT(unsolved.out, HasSubstr("inner problem not solved"));
  const Output curved = run_program("check --problem mlp");
  EXPECT_THAT(curved.out, HasSubstr("negative curvature"));
}

}  // namespace
}  // namespace bilevel::test
