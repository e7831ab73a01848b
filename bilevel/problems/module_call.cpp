#include "bilevel/problems/module_call.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/library.h>
#include <torch/nn/module.h>

#include <mutex>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace bilevel {
namespace {

constexpr auto key = c10::DispatchKey::DeferredInit;

using TensorMap = std::unordered_map<const c10::TensorImpl*, size_t>;

// The default generator of a device, seeded for a while.
class SeededGenerator {
 public:
  SeededGenerator(c10::Device device, uint64_t seed)
      : generator_(at::globalContext().defaultGenerator(device)) {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    state_ = generator_.get_state();
    generator_.set_current_seed(seed);
  }
  ~SeededGenerator() {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(state_);
  }
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

 private:
  at::Generator generator_;
  Tensor state_;
};

// One call: what stands for which tensor of the module.
struct ActiveCall {
  const TensorMap& parameters;
  const TensorMap& buffers;
  std::vector<Tensor> parts;   // of w
  std::vector<Tensor> copies;  // of buffers, made when one is first met
  c10::Device device;
  uint64_t seed;
  std::optional<SeededGenerator> generator = {};
  ActiveCall* outer = nullptr;  // a module may be called within the call of another

  void exchange(Tensor& t) {
    if (!t.defined()) return;
    const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
    if (const auto found = parameters.find(impl); found != parameters.end()) {
      t = parts[found->second];
    } else if (const auto buffer = buffers.find(impl); buffer != buffers.end()) {
      Tensor& copy = copies[buffer->second];
      if (!copy.defined()) copy = t.clone();
      t = copy;
    } else if (outer != nullptr) {
      outer->exchange(t);
    }
  }

  void exchange(c10::IValue& value) {
    if (value.isTensor()) {
      Tensor t = value.toTensor();
      const c10::TensorImpl* before = t.unsafeGetTensorImpl();
      exchange(t);
      if (t.unsafeGetTensorImpl() != before) value = std::move(t);
    } else if (value.isTensorList()) {
      c10::List<Tensor> list = value.toTensorList().copy();
      for (size_t i = 0; i < list.size(); ++i) {
        Tensor t = list.get(i);
        exchange(t);
        list.set(i, std::move(t));
      }
      value = std::move(list);
    }
  }
};
thread_local ActiveCall* active = nullptr;

void exchange_arguments(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  // Operations within an operation get what was exchanged here.
  const c10::impl::ExcludeDispatchKeyGuard within(key);
  if (active != nullptr) {
    const size_t arguments = op.schema().arguments().size();
    for (size_t i = stack->size() - arguments; i < stack->size(); ++i) active->exchange((*stack)[i]);
    if (!active->generator && op.hasTag(at::Tag::nondeterministic_seeded)) {
      active->generator.emplace(active->device, active->seed);
    }
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key), stack);
}

void register_once() {
  static torch::Library library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  static const bool done = [] {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&exchange_arguments>());
    return true;
  }();
  (void)done;
}

}  // namespace

struct ModuleCall::Places {
  std::vector<Tensor> parameters;
  TensorMap parameter_places, buffer_places;
};

ModuleCall::ModuleCall(std::shared_ptr<torch::nn::Module> module)
    : module_(std::move(module)), places_(std::make_unique<Places>()) {
  if (!module_) throw std::invalid_argument("ModuleProblem: the module is null");
  for (const auto& named : module_->named_parameters()) {
    const Tensor& t = named.value();
    if (!t.defined() || !t.requires_grad()) continue;
    // A tensor that is registered twice, as tied weights are, is one part of w.
    if (!places_->parameter_places.emplace(t.unsafeGetTensorImpl(), places_->parameters.size()).second)
      continue;
    if (!places_->parameters.empty() && (t.scalar_type() != places_->parameters[0].scalar_type() ||
                                         t.device() != places_->parameters[0].device())) {
      throw std::invalid_argument(fmt::format(
          "ModuleProblem: parameter {} is {} on {}, but {} is {} on {}: w is one vector, bring them to "
          "one type and device",
          named.key(), c10::toString(t.scalar_type()), t.device().str(), layout_.entries()[0].name,
          c10::toString(places_->parameters[0].scalar_type()), places_->parameters[0].device().str()));
    }
    layout_.add(named.key(), t.sizes().vec());
    places_->parameters.push_back(t);
  }
  if (places_->parameters.empty()) {
    throw std::invalid_argument("ModuleProblem: the module has no parameter that requires a gradient");
  }
  size_t buffers = 0;
  for (const Tensor& t : module_->buffers()) {
    if (t.defined() && places_->buffer_places.emplace(t.unsafeGetTensorImpl(), buffers).second) ++buffers;
  }
  register_once();
}

ModuleCall::~ModuleCall() = default;
ModuleCall::ModuleCall(ModuleCall&&) noexcept = default;

Tensor ModuleCall::parameters() const {
  const at::NoGradGuard no_grad;
  return layout_.flatten(places_->parameters).clone();
}

void ModuleCall::write(const Tensor& w) const {
  const at::NoGradGuard no_grad;
  const std::vector<Tensor> parts = layout_.split(w);
  for (size_t i = 0; i < parts.size(); ++i) places_->parameters[i].copy_(parts[i]);
}

Tensor ModuleCall::run(const Tensor& w, uint64_t seed, const std::function<Tensor()>& function) const {
  struct Restore {
    ActiveCall* before = active;
    ~Restore() { active = before; }
  } const restore;
  ActiveCall call{.parameters = places_->parameter_places,
                  .buffers = places_->buffer_places,
                  .parts = layout_.split(w),
                  .copies = std::vector<Tensor>(places_->buffer_places.size()),
                  .device = places_->parameters[0].device(),
                  .seed = seed,
                  .outer = restore.before};
  active = &call;
  const c10::impl::IncludeDispatchKeyGuard include(key);
  return function();
}

}  // namespace bilevel
