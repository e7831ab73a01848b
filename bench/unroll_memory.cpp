// K-RMD's Table 1 with measured numbers: the time and the memory of forward, reverse, checkpointed and
// truncated reverse mode, and of two implicit estimators, over T steps of gradient descent on a problem of n
// inner variables. Memory is the process's own: the rise of its peak over the inner loop and the estimator,
// less the rise that truncated K = 1 has, which keeps nothing but what one step needs. Every method runs in a
// process of its own (the program starts itself with --method), so that none inherits another's heap. Time is
// that of the inner loop and the estimator, over that of truncated K = 1, which is the inner loop and next to
// nothing more; in processor seconds, which a busy machine disturbs less. The reverse methods must agree bit
// for bit.

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/quartic.h"
#include "bench/support.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/run/restart.h"

namespace {

struct Job {
  int64_t steps, size, outer, truncate, terms, byte_budget, threads;
  std::string allocator;
  bool single, autograd;
};

struct Row {
  std::string method;
  int64_t truncate;
  std::string time, space;  // as the table has them: c one step, n and m the inner and outer variables
};

// What a child prints, one line of name=value.
using Record = std::map<std::string, std::string>;

// Once for the pages and the thread pool that the first calls bring, then for the measurement.
bilevel::InnerAndHypergradient compute(const bench::Quartic& problem, const std::string& method,
                                       const Job& job, int64_t steps) {
  bilevel::Oracle oracle(problem);
  bilevel::InnerOptions inner;
  inner.steps = steps;
  inner.rate = 0.01;
  bilevel::EstimatorSettings settings;
  settings.terms = job.terms;
  settings.truncate = job.truncate;
  settings.byte_budget = job.byte_budget;
  const auto estimator = bilevel::make_estimator(method, settings);
  return bilevel::hypergradient_at(oracle, problem.initial_outer(0), problem.initial_inner(0), inner,
                                   *estimator);
}

void run_child(const std::string& method, const Job& job) {
  const bench::Quartic problem(job.size, job.outer, job.single ? at::kFloat : at::kDouble, !job.autograd);
  compute(problem, method, job, 2);

  const bench::PeakMemory memory;
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  const auto result = compute(problem, method, job, job.steps);
  const double seconds = bench::seconds_since(begin);
  const double cpu_seconds = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  const int64_t rise = memory.rise();

  const auto& hypergradient = result.hypergradient;
  const at::Tensor value = hypergradient.value.to(at::kDouble).contiguous();
  std::vector<std::string> bits;
  for (int64_t i = 0; i < value.numel(); ++i) bits.push_back(fmt::format("{:a}", value[i].item<double>()));
  fmt::print(
      "seconds={} cpu_seconds={} rise={} bytes_kept={} gradients={} hessians={} "
      "crosses={} norm={} "
      "values={}\n",
      seconds, cpu_seconds, rise, hypergradient.bytes_kept, hypergradient.counts.inner_gradient,
      hypergradient.counts.hessian, hypergradient.counts.cross, value.norm().item<double>(),
      fmt::join(bits, ","));
}

Record run_in_child(const std::string& method, const Job& job) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = fmt::format(
      "'{}' --method {} --steps {} --size {} --outer {} --threads {} --truncate {} --terms {} --budget "
      "{} --allocator {}{}{}",
      self, method, job.steps, job.size, job.outer, job.threads, job.truncate, job.terms, job.byte_budget,
      job.allocator, job.single ? " --float" : "", job.autograd ? " --autograd" : "");
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start: " + command);
  std::string output;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe) != nullptr) output += buffer.data();
  if (pclose(pipe) != 0)
    throw std::runtime_error(fmt::format("{} failed: was memory short? Lower --steps or --size", method));
  Record record;
  std::istringstream words(output);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    record[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return record;
}

double number(const Record& record, const std::string& name) { return std::stod(record.at(name)); }

double relative_distance(const Record& a, const Record& b) {
  std::istringstream left(a.at("values")), right(b.at("values"));
  double difference = 0, norm = 0;
  for (std::string l, r; std::getline(left, l, ',') && std::getline(right, r, ',');) {
    difference += std::pow(std::stod(l) - std::stod(r), 2);
    norm += std::pow(std::stod(r), 2);
  }
  return std::sqrt(difference / norm);
}

// Reverse mode keeps T * n numbers; what is not there is not asked for.
void fit_memory(Job& job) {
  const int64_t state = job.size * (job.single ? 4 : 8);
  const int64_t held = job.allocator == "system" ? 2 * state : state;  // the heap's holes, see block_cache.h
  const int64_t available = bench::proc_bytes("/proc/meminfo", "MemAvailable");
  const int64_t room = available - 4'000'000'000;
  if (job.steps * held <= room) return;
  const int64_t steps = std::max<int64_t>(room / held, 10);
  fmt::print(
      "note: {:.1f} GB are available, too few for {} states of {:.0f} MB and 4 GB of reserve: {} steps "
      "instead\n\n",
      static_cast<double>(available) / 1e9, job.steps, static_cast<double>(state) / 1e6, steps);
  job.steps = steps;
}

void print_table(Job job) {
  fit_memory(job);
  const int64_t some = std::max<int64_t>(job.steps / 10, 1);
  const std::vector<Row> rows = {{"truncated", 1, "c", "n"},
                                 {"forward", 1, "c m T", "m n"},
                                 {"reverse", 1, "c T", "n T"},
                                 {"reverse-sqrt", 1, "2 c T", "2 n sqrt(T)"},
                                 {"reverse-binomial", 1, "c r T", "budget"},
                                 {"truncated", some, "c K", "n K"},
                                 {"neumann", 1, "c K", "n"},
                                 {"cg", 1, "c K", "n"}};
  fmt::print(
      "T = {} steps, n = {} inner and m = {} outer variables in {}, {}, {} threads, "
      "allocator {}; one state is {:.1f} MB\n",
      job.steps, job.size, job.outer, job.single ? "float" : "double",
      job.autograd ? "automatic differentiation" : "closed form", job.threads, job.allocator,
      static_cast<double>(job.size * (job.single ? 4 : 8)) / 1e6);
  fmt::print("K = {} for truncated, {} for neumann and cg; budget of reverse-binomial {:.0f} MB\n\n", some,
             job.terms, static_cast<double>(job.byte_budget) / 1e6);
  fmt::print("{:<18} {:>11} {:>11} {:>8} {:>7} {:>11} {:>12} {:>9} {:>9} {:>9} {:>10}\n", "method", "time",
             "space", "seconds", "cpu s", "over inner", "measured MB", "kept MB", "gradients", "hessians",
             "distance");

  std::vector<Record> records;
  for (const Row& row : rows) {
    Job one = job;
    one.truncate = row.truncate;
    records.push_back(run_in_child(row.method, one));
  }
  const Record& baseline = records[0];
  const Record& reverse = records[2];
  for (size_t i = 0; i < rows.size(); ++i) {
    const Record& r = records[i];
    const double cpu = number(r, "cpu_seconds");
    const std::string name =
        rows[i].method == "truncated" ? fmt::format("truncated {}", rows[i].truncate) : rows[i].method;
    fmt::print("{:<18} {:>11} {:>11} {:>8.2f} {:>7.2f} {:>11.2f} {:>12.1f} {:>9.1f} {:>9} {:>9} {:>10.1e}\n",
               name, rows[i].time, rows[i].space, number(r, "seconds"), cpu,
               cpu / number(baseline, "cpu_seconds"), (number(r, "rise") - number(baseline, "rise")) / 1e6,
               number(r, "bytes_kept") / 1e6, r.at("gradients"), r.at("hessians"),
               relative_distance(r, reverse));
  }
  const bool same =
      records[3].at("values") == reverse.at("values") && records[4].at("values") == reverse.at("values");
  fmt::print(
      "\nseconds, cpu s: of the inner loop and the estimator; over inner: cpu s over those of truncated 1.\n"
      "measured MB: rise of the peak less that of truncated 1, which was {:.1f} MB; kept MB: as reported.\n"
      "time and space: c one step, r the times a step is taken again; distance: |h - h_reverse| / "
      "|h_reverse|.\n",
      number(baseline, "rise") / 1e6);
  fmt::print("reverse, reverse-sqrt and reverse-binomial agree bit for bit: {}\n", same ? "yes" : "NO");
  if (!same) throw std::runtime_error("checkpointing changed the numbers");
}

}  // namespace

int main(int argc, char** argv) try {
  bilevel::restart_with_best_settings(argv);
  bench::Options options(argc, argv);
  Job job{};
  job.steps = options.integer("steps", 1000);
  job.size = options.integer("size", 1'000'000);
  job.outer = options.integer("outer", 2);
  const bench::Machine machine(options);
  job.threads = machine.threads;
  job.allocator = machine.allocator;
  job.truncate = options.integer("truncate", 1);
  job.terms = options.integer("terms", 10);
  job.byte_budget = options.integer("budget", 64'000'000);
  job.single = options.flag("float");
  job.autograd = options.flag("autograd");
  const std::string method = options.text("method", "");
  options.finish();
  if (method.empty()) {
    print_table(job);
  } else {
    run_child(method, job);
  }
  return 0;
} catch (const c10::Error& error) {
  fmt::print(stderr, "bench_unroll_memory: {}\n", error.what_without_backtrace());
  return 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_unroll_memory: {}\n", error.what());
  return 1;
}
