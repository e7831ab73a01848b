#include "python/doors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bilevel/algorithms/streams.h"
#include "bilevel/core/errors.h"
#include "bilevel/core/linearization.h"
#include "bilevel/core/oracle.h"
#include "python/held.h"
#include "python/module.h"
#include "python/problem.h"

namespace bilevel::python {
namespace {

// What a Python method is given for the time of its call. Whoever keeps it longer gets an exception, not a
// memory that is gone.
template <typename T>
class Lent {
 public:
  explicit Lent(T& what) : what_(&what) {}
  T& get() const {
    if (what_ == nullptr) {
      throw std::runtime_error("it is valid only during one call, which is over: keep tensors instead");
    }
    return *what_;
  }
  void take_back() { what_ = nullptr; }

 private:
  T* what_;
};

using LentOracle = Lent<Oracle>;
using LentStreams = Lent<Streams>;

class LentState : public Lent<AlgorithmState> {
 public:
  using Step = std::function<void(AlgorithmState& state, const Tensor& direction)>;
  LentState(AlgorithmState& state, Step step) : Lent(state), step_(std::move(step)) {}
  void step_outer(const Tensor& direction) { step_(get(), direction); }

 private:
  Step step_;
};

// Products at a point; the oracle behind them must be lent still.
struct LentLinearization {
  std::shared_ptr<LentOracle> oracle;
  std::shared_ptr<Linearization> products;
  Linearization& get() const { return (void)oracle->get(), *products; }
};

// The oracle of one call, and the last outer gradients that were taken by it: what a result says of f.
struct PythonOracle {
  std::shared_ptr<LentOracle> oracle;
  std::shared_ptr<OuterGradients> last = std::make_shared<OuterGradients>();
};

Batch batch_from(const py::object& batch) { return batch.is_none() ? Batch{} : batch.cast<Batch>(); }

// Calls a method of Python's, which is lent these things until it returns. Where the library's own exception
// came through it, it goes on as what it was: a loop stops at the last good state then.
template <typename Call, typename... Things>
auto during(Call call, Things&... lent) {
  struct TakeBack {
    std::tuple<Things&...> all;
    ~TakeBack() {
      std::apply([](auto&... one) { (one->take_back(), ...); }, all);
    }
  } const take_back{std::tie(lent...)};
  try {
    return call();
  } catch (const py::error_already_set& error) {
    if (!error.matches(not_finite_type())) throw;
    throw NotFiniteError(py::str(error.value()).cast<std::string>());
  }
}

const Tensor& tensor_from(const py::handle& value, const std::string& what) {
  if (!THPVariable_Check(value.ptr())) {
    throw py::type_error(
        fmt::format("{} must be a torch.Tensor, not {}", what, Py_TYPE(value.ptr())->tp_name));
  }
  return THPVariable_Unpack(value.ptr());
}

Tensor sized_like(const py::handle& value, const Tensor& like, const std::string& what) {
  const Tensor& tensor = tensor_from(value, what);
  if (!tensor.sizes().equals(like.sizes()) || tensor.scalar_type() != like.scalar_type() ||
      tensor.device() != like.device()) {
    throw std::invalid_argument(
        fmt::format("{} must have {} elements of {} on {}, but has {} in {} dimensions of {} on {}", what,
                    like.numel(), c10::toString(like.scalar_type()), like.device().str(), tensor.numel(),
                    tensor.dim(), c10::toString(tensor.scalar_type()), tensor.device().str()));
  }
  return tensor.detach();
}

Status status_from(const std::string& name) {
  for (const Status status : {Status::ok, Status::converged, Status::max_iterations, Status::breakdown,
                              Status::negative_curvature, Status::diverged, Status::not_finite}) {
    if (name_of(status) == name) return status;
  }
  throw py::value_error(
      fmt::format("status '{}' is unknown: ok, converged, max_iterations, breakdown, "
                  "negative_curvature, diverged or not_finite",
                  name));
}

struct Object {
  py::object object;
};

std::string own_name(const py::object& object) {
  return py::hasattr(object, "name") ? py::str(object.attr("name")).cast<std::string>()
                                     : py::str(py::type::of(object).attr("__name__")).cast<std::string>();
}

class PythonEstimator : public HypergradientEstimator {
 public:
  explicit PythonEstimator(const py::object& object)
      : object_(held(Object{object})),
        name_(own_name(object)),
        implicit_(py::bool_(object.attr("implicit"))) {}
  std::string_view name() const override { return name_; }
  bool implicit() const override { return implicit_; }

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override {
    const py::gil_scoped_acquire lock;
    const auto lent = std::make_shared<LentOracle>(oracle);
    const PythonOracle shown{lent};
    py::dict asked;
    asked["x"] = request.x;
    asked["w"] = request.inner.final.w;
    asked["outer_batch"] = request.outer;
    asked["cross_batch"] = request.cross;
    asked["hessian_batches"] = request.hessian;
    asked["warm_start"] = request.warm_start.defined() ? py::cast(request.warm_start) : py::none();
    const py::object found = during(
        [&]() -> py::object {
          const py::object types = py::module_::import("types");
          return object_->object.attr("compute")(shown, types.attr("SimpleNamespace")(**asked));
        },
        lent);
    Hypergradient result = estimate_from(*shown.last);
    result.status = Status::ok;
    const std::string what = name_ + ".compute()";
    if (!PyDict_Check(found.ptr())) {
      result.value = sized_like(found, request.x, "what " + what + " returns");
      return result;
    }
    const auto parts = py::reinterpret_borrow<py::dict>(found);
    if (!parts.contains("value")) throw py::value_error(what + " returned a dict without 'value'");
    result.value = sized_like(parts["value"], request.x, "'value' of " + what);
    if (parts.contains("status")) result.status = status_from(py::str(parts["status"]).cast<std::string>());
    if (parts.contains("solution")) {
      result.solution = sized_like(parts["solution"], request.inner.final.w, "'solution' of " + what);
    }
    if (parts.contains("iterations")) result.iterations = parts["iterations"].cast<int64_t>();
    return result;
  }

  std::shared_ptr<Object> object_;
  std::string name_;
  bool implicit_;
};

class PythonAlgorithm : public Algorithm {
 public:
  PythonAlgorithm(const py::object& object, const OuterOptions& options)
      : Algorithm(options), object_(held(Object{object})), name_(own_name(object)) {}
  std::string_view name() const override { return name_; }

 private:
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override {
    const py::gil_scoped_acquire lock;
    const auto lent_oracle = std::make_shared<LentOracle>(oracle);
    const auto lent_streams = std::make_shared<LentStreams>(streams);
    const auto lent_state = std::make_shared<LentState>(
        state, [this](AlgorithmState& s, const Tensor& d) { s.x = outer().step(s.x, d, s.outer); });
    const PythonOracle shown{lent_oracle};
    const py::object found =
        during([&]() -> py::object { return object_->object.attr("step")(shown, lent_state, lent_streams); },
               lent_oracle, lent_streams, lent_state);
    IterationSummary summary;
    summary.status = Status::ok;
    summary.outer_loss = shown.last->loss;
    const std::string what = name_ + ".step()";
    if (PyDict_Check(found.ptr())) {
      const auto parts = py::reinterpret_borrow<py::dict>(found);
      if (!parts.contains("direction")) throw py::value_error(what + " returned a dict without 'direction'");
      summary.direction = sized_like(parts["direction"], state.x, "'direction' of " + what);
      if (parts.contains("status"))
        summary.status = status_from(py::str(parts["status"]).cast<std::string>());
    } else {
      summary.direction = sized_like(found, state.x, "the direction that " + what + " returns");
    }
    return summary;
  }

  std::shared_ptr<Object> object_;
  std::string name_;
};

// The lock is not needed while the library computes; a problem of Python takes it again.
template <typename Work>
auto unlocked(Work work) {
  const py::gil_scoped_release release;
  return work();
}

void add_oracle(py::module_& m) {
  py::class_<OuterGradients>(m, "OuterGradients", "f and its two gradients, which come from one pass.")
      .def_readonly("loss", &OuterGradients::loss)
      .def_readonly("x", &OuterGradients::x)
      .def_readonly("w", &OuterGradients::w);
  py::class_<LentLinearization>(m, "Linearization", "Second derivatives of the inner loss at one point.")
      .def("gradient",
           [](const LentLinearization& g) { return unlocked([&] { return g.get().gradient(); }); })
      .def(
          "hessian",
          [](const LentLinearization& g, const Tensor& v) {
            return unlocked([&] { return g.get().hessian(v); });
          },
          py::arg("v"), "(d2g/dw dw) v")
      .def(
          "cross",
          [](const LentLinearization& g, const Tensor& v) {
            return unlocked([&] { return g.get().cross(v); });
          },
          py::arg("v"), "(d2g/dx dw) v, of x's size")
      .def(
          "cross_transposed",
          [](const LentLinearization& g, const Tensor& u) {
            return unlocked([&] { return g.get().cross_transposed(u); });
          },
          py::arg("u"), "(d2g/dw dx) u, of w's size");
  py::class_<PythonOracle>(m, "Oracle", "The problem's derivatives, each counted.")
      .def(
          "inner_gradient",
          [](const PythonOracle& o, const Tensor& x, const Tensor& w, const py::object& batch) {
            const Batch b = batch_from(batch);
            return unlocked([&] { return o.oracle->get().inner_gradient(w, x, b); });
          },
          py::arg("x"), py::arg("w"), py::arg("batch") = py::none(), "dg/dw")
      .def(
          "inner_gradient_in_outer",
          [](const PythonOracle& o, const Tensor& x, const Tensor& w, const py::object& batch) {
            const Batch b = batch_from(batch);
            return unlocked([&] { return o.oracle->get().inner_gradient_in_outer(w, x, b); });
          },
          py::arg("x"), py::arg("w"), py::arg("batch") = py::none(), "dg/dx")
      .def(
          "outer_gradients",
          [](const PythonOracle& o, const Tensor& x, const Tensor& w, const py::object& batch) {
            const Batch b = batch_from(batch);
            return *o.last = unlocked([&] { return o.oracle->get().outer_gradients(w, x, b); });
          },
          py::arg("x"), py::arg("w"), py::arg("batch") = py::none(), "f, df/dx and df/dw")
      .def(
          "linearize",
          [](const PythonOracle& o, const Tensor& x, const Tensor& w, const py::object& batch) {
            const Batch b = batch_from(batch);
            return LentLinearization{
                o.oracle,
                unlocked([&] { return std::shared_ptr<Linearization>(o.oracle->get().linearize(w, x, b)); })};
          },
          py::arg("x"), py::arg("w"), py::arg("batch") = py::none(), "second derivatives of g at a point");
}

void add_state(py::module_& m) {
  py::class_<LentStreams, std::shared_ptr<LentStreams>>(m, "Batches", "The batches of an iteration, by name.")
      .def(
          "inner", [](const LentStreams& s, const std::string& name) { return s.get().inner(name); },
          py::arg("name"), "the next batch of the inner loss from the stream of this name")
      .def(
          "outer", [](const LentStreams& s, const std::string& name) { return s.get().outer(name); },
          py::arg("name"), "the next batch of the outer loss");
  using S = LentState;
  py::class_<S, std::shared_ptr<S>>(m, "State", "What an algorithm carries from one iteration to the next.")
      .def_property(
          "x", [](const S& s) { return s.get().x; },
          [](const S& s, const py::object& t) { s.get().x = sized_like(t, s.get().x, "state.x"); })
      .def_property(
          "w", [](const S& s) { return s.get().inner.w; },
          [](const S& s, const py::object& t) {
            s.get().inner.w = sized_like(t, s.get().inner.w, "state.w");
          })
      .def_property_readonly("iteration", [](const S& s) { return s.get().iteration; })
      .def("step_outer", &S::step_outer, py::arg("direction"), "moves x by the outer optimizer")
      .def("__contains__", [](const S& s, const std::string& name) { return s.get().memory.contains(name); })
      .def("__getitem__",
           [](const S& s, const std::string& name) {
             const auto found = s.get().memory.find(name);
             if (found == s.get().memory.end()) throw py::key_error(name);
             return found->second;
           })
      .def("__setitem__",
           [](const S& s, const std::string& name, const Tensor& t) { s.get().memory[name] = t.detach(); });
}

}  // namespace

std::shared_ptr<const HypergradientEstimator> estimator_from(const py::object& object) {
  if (!py::hasattr(object, "compute") || !py::hasattr(object, "implicit")) {
    throw py::type_error(
        fmt::format("method must be a name or a bilevel.Estimator, not {}", Py_TYPE(object.ptr())->tp_name));
  }
  return std::make_shared<PythonEstimator>(object);
}

std::unique_ptr<Algorithm> algorithm_from(const py::object& object, const OuterOptions& outer) {
  if (!py::hasattr(object, "step")) {
    throw py::type_error(fmt::format("algorithm must be a name or a bilevel.Algorithm, not {}",
                                     Py_TYPE(object.ptr())->tp_name));
  }
  return std::make_unique<PythonAlgorithm>(object, outer);
}

void add_doors(py::module_& m) {
  add_oracle(m);
  add_state(m);
}

}  // namespace bilevel::python
