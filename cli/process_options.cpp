#include "cli/process_options.h"

namespace bilevel::cli {
namespace {

template <typename Options, typename Process>
void add_output_fields(Fields<Options>& f, Process process) {
  f.heading("");
  f.add(
       "json", [process](auto& o) -> auto& { return process(o).json; },
       "print one JSON object on stdout and nothing else")
      .is(FieldKind::process)
      .first();
  f.add(
       "quiet", [process](auto& o) -> auto& { return process(o).quiet; }, "show no progress on stderr")
      .is(FieldKind::process);
  f.add(
       "log_level", [process](auto& o) -> auto& { return process(o).log_level; },
       "messages to show on stderr: error, warning, info or debug")
      .one_of({"error", "warning", "info", "debug"})
      .is(FieldKind::process);
}

template <typename Options, typename Process>
void add_group_fields(Fields<Options>& f, Process process) {
  f.heading("several processes (bilevel launch, mpirun, srun, torchrun)");
  f.add(
       "backend", [process](auto& o) -> auto& { return process(o).group.backend; },
       "how processes exchange tensors; default: nccl on GPUs if each process has its own GPU, otherwise "
       "gloo")
      .one_of({"gloo", "nccl"})
      .by_rule()
      .is(FieldKind::process);
  f.add(
       "timeout", [process](auto& o) -> auto& { return process(o).group.timeout; },
       "seconds that a process waits for the others before all end")
      .in(above(0))
      .is(FieldKind::process);
}

}  // namespace

const Fields<ProcessOptions>& ProcessOptions::fields() {
  static const Fields<ProcessOptions> table = [] {
    using O = ProcessOptions;
    Fields<O> f;
    f.heading("run");
    f.add(
         "out", [](O & o) -> auto& { return o.out; }, "folder of the run; default: runs/COMMAND-DATE-SEED")
        .is(FieldKind::process)
        .first();
    f.add(
         "resume", [](O & o) -> auto& { return o.resume; },
         "resume the run in this folder; the results are the same bits")
        .is(FieldKind::process)
        .first();
    f.add(
         "config", [](O & o) -> auto& { return o.config; },
         "read options from a file: a run's config.json, other JSON or TOML; the command line takes "
         "precedence")
        .is(FieldKind::process);
    f.add(
         "save_every", [](O & o) -> auto& { return o.save_seconds; }, "seconds between two checkpoints")
        .in(at_least(0))
        .is(FieldKind::process);
    f.add(
         "tensorboard", [](O & o) -> auto& { return o.tensorboard; },
         "write an event file for TensorBoard beside metrics.jsonl")
        .is(FieldKind::process);
    add_output_fields(f, [](O& o) -> O& { return o; });
    add_group_fields(f, [](O& o) -> O& { return o; });
    return f;
  }();
  return table;
}

const Fields<WholeRunOptions>& WholeRunOptions::fields() {
  static const Fields<WholeRunOptions> table = [] {
    Fields<WholeRunOptions> f;
    f.include([](WholeRunOptions& o) -> ProcessOptions& { return o; },
              ProcessOptions::fields().without({"save_every", "tensorboard"}));
    f.row("resume").help =
        "resume the run in this folder: finished runs of a grid are kept, the others are made again";
    return f;
  }();
  return table;
}

const Fields<OutputOptions>& OutputOptions::fields() {
  static const Fields<OutputOptions> table = [] {
    Fields<OutputOptions> f;
    add_output_fields(f, [](OutputOptions& o) -> ProcessOptions& { return o.process; });
    return f;
  }();
  return table;
}

const Fields<KeptOptions>& KeptOptions::fields() {
  static const Fields<KeptOptions> table = [] {
    Fields<KeptOptions> f;
    f.add(
         "out", [](KeptOptions & o) -> auto& { return o.process.out; }, "folder for the results")
        .is(FieldKind::process)
        .first();
    add_output_fields(f, [](KeptOptions& o) -> ProcessOptions& { return o.process; });
    add_group_fields(f, [](KeptOptions& o) -> ProcessOptions& { return o.process; });
    return f;
  }();
  return table;
}

CommonOptions common_options(const ProcessOptions& process) {
  CommonOptions common;
  common.json = process.json;
  common.quiet = process.quiet;
  common.log_level = process.log_level;
  return common;
}

}  // namespace bilevel::cli
