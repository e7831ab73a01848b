// c10d has its backends' headers only where the libraries' own are there.
#if __has_include(<gloo/config.h>)
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#define BILEVEL_HAS_GLOO
#endif
#if defined(BILEVEL_HAS_CUDA) && __has_include(<nccl.h>)
#ifndef USE_C10D_NCCL
#define USE_C10D_NCCL
#endif
#define BILEVEL_HAS_NCCL
#endif

#include "bilevel/distributed/transport.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>
#ifdef BILEVEL_HAS_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif
#ifdef BILEVEL_HAS_GLOO_LIBRARY
#include <gloo/rendezvous/context.h>
#endif
#ifdef BILEVEL_HAS_NCCL
#include <cuda_runtime_api.h>
#include <torch/csrc/api/include/torch/cuda.h>
#include <torch/csrc/cuda/nccl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "bilevel/distributed/peer_process.h"
#include "bilevel/distributed/process_group.h"
#include "bilevel/distributed/short_sums.h"

namespace bilevel {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000) + 1);
}

// Made for the user alone, or there already and nobody else's: who can write to it can end the run.
void make_private_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw std::runtime_error(
        fmt::format("{}: the folder where the ranks meet cannot be made: {}", folder, std::strerror(errno)));
  }
  struct ::stat status {};
  if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() ||
      (status.st_mode & 077) != 0) {
    throw std::runtime_error(
        fmt::format("{}: the folder where the ranks meet must be a folder that only this user can open (mode "
                    "0700); remove it",
                    folder));
  }
}

class C10dPlace : public MeetingPlace {
 public:
  C10dPlace(const RankPlace& place, double timeout)
      : hosts_(place.folder.empty() && !place.alone() && place.rank == 0 && !place.agent_listens) {
    if (place.folder.empty() && place.alone()) {
      whole_ = c10::make_intrusive<c10d::HashStore>();
    } else if (!place.folder.empty()) {
      make_private_folder(place.folder);
      folder_ = place.folder;
      whole_ = c10::make_intrusive<c10d::FileStore>(place.folder + "/store", place.size);
    } else {
      c10d::TCPStoreOptions options;
      options.port = static_cast<uint16_t>(place.port);
      options.isServer = hosts_;
      options.waitWorkers = false;
      options.timeout = milliseconds(timeout);
      whole_ = c10::make_intrusive<c10d::TCPStore>(place.address, options);
    }
    whole_->setTimeout(milliseconds(timeout));
    words_ = c10::make_intrusive<c10d::PrefixStore>("bilevel", whole_);
  }
  ~C10dPlace() override {
    words_.reset();
    whole_.reset();  // the last rank removes the file
    if (!folder_.empty()) ::rmdir(folder_.c_str());
  }
  C10dPlace(const C10dPlace&) = delete;
  C10dPlace& operator=(const C10dPlace&) = delete;

  void set(const std::string& key, const std::string& value) override { words_->set(key, bytes(value)); }
  bool has(const std::string& key) override { return words_->check({key}); }
  std::string get(const std::string& key) override { return text(words_->get(key)); }
  std::string set_first(const std::string& key, const std::string& value) override {
    return text(words_->compareSet(key, {}, bytes(value)));
  }
  bool ends_with_this_process() const override { return hosts_; }

  StorePointer for_backend(const std::string& name) const {
    return c10::make_intrusive<c10d::PrefixStore>(name, whole_);
  }

 private:
  // One byte in front: some stores take an empty value for none.
  static std::vector<uint8_t> bytes(const std::string& text) {
    const std::string marked = ' ' + text;
    return {marked.begin(), marked.end()};
  }
  static std::string text(const std::vector<uint8_t>& bytes) {
    return bytes.empty() ? "" : std::string(bytes.begin() + 1, bytes.end());
  }

  bool hosts_;
  std::string folder_;
  StorePointer whole_, words_;
};

template <typename Group>
class C10dTransport : public Transport {
 public:
  C10dTransport(c10::intrusive_ptr<Group> group, c10::Device device)
      : group_(std::move(group)), device_(device) {}

  bool sum_(Tensor& contiguous) override {
    std::vector<at::Tensor> one = {contiguous};
    group_->allreduce(one)->wait();
    return false;
  }
  void broadcast_(Tensor& contiguous, int from) override {
    std::vector<at::Tensor> one = {contiguous};
    c10d::BroadcastOptions options;
    options.rootRank = from;
    group_->broadcast(one, options)->wait();
  }
  Tensor scalar(double value) const override {
    return at::full({1}, value, at::TensorOptions().dtype(at::kDouble).device(device_));
  }
  // LibTorch 2.x takes a group of NCCL's that goes without it for one that failed.
  void leave() override {
    if constexpr (requires { group_->shutdown(); }) group_->shutdown();
  }

 private:
  c10::intrusive_ptr<Group> group_;
  c10::Device device_;
};

#ifdef BILEVEL_HAS_GLOO
using GlooDevice = std::shared_ptr<::gloo::transport::Device>;

GlooDevice make_gloo_device(const RankPlace& place) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (place.one_machine) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  if (interface != nullptr && *interface != '\0') {
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  }
  return c10d::ProcessGroupGloo::createDefaultDevice();
}

#ifdef BILEVEL_HAS_GLOO_LIBRARY
// Sums by Gloo itself, with its device and its meeting place from c10d.
class GlooTransport : public C10dTransport<c10d::ProcessGroupGloo> {
 public:
  GlooTransport(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, std::shared_ptr<::gloo::Context> context,
                ShortSumsOptions short_sums)
      : C10dTransport(std::move(group), c10::Device(c10::kCPU)),
        short_sums_(std::move(context), short_sums) {}
  bool sum_(Tensor& contiguous) override {
    return short_sums_.sum_(contiguous) || C10dTransport::sum_(contiguous);
  }

 private:
  ShortSums short_sums_;
};

std::shared_ptr<::gloo::Context> connect(const RankPlace& place, const StorePointer& store, double timeout,
                                         GlooDevice device) {
  auto context = std::make_shared<::gloo::rendezvous::Context>(place.rank, place.size);
  context->setTimeout(milliseconds(timeout));
  c10d::ProcessGroupGloo::GlooStore words(store);
  context->connectFullMesh(words, device);
  return context;
}
#endif

std::unique_ptr<Transport> make_gloo(const RankPlace& place, const C10dPlace& store, double timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(timeout));
  const GlooDevice device = make_gloo_device(place);
  options->devices.push_back(device);
  options->threads = 1;  // one sum at a time
  auto group =
      c10::make_intrusive<c10d::ProcessGroupGloo>(store.for_backend("gloo"), place.rank, place.size, options);
#ifdef BILEVEL_HAS_GLOO_LIBRARY
  if (!place.alone()) {
    const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
    return std::make_unique<GlooTransport>(
        std::move(group), connect(place, store.for_backend("short"), timeout, device),
        ShortSumsOptions{.in_pieces = place.one_machine, .may_spin = place.local_size <= cores});
  }
#endif
  return std::make_unique<C10dTransport<c10d::ProcessGroupGloo>>(std::move(group), c10::Device(c10::kCPU));
}
#endif

#ifdef BILEVEL_HAS_NCCL
// LibTorch's classes have NCCL's structures as members, which grow with its version.
bool has_nccl_of_libtorch() {
  const std::uint64_t version = torch::cuda::nccl::version();
  return (version >> 32) == NCCL_MAJOR && ((version >> 16) & 0xffff) == NCCL_MINOR;
}

void require_nccl_of_libtorch() {
  if (has_nccl_of_libtorch()) return;
  const std::uint64_t version = torch::cuda::nccl::version();
  const std::uint64_t major = version >> 32, minor = (version >> 16) & 0xffff;
  throw std::invalid_argument(fmt::format(
      "backend nccl: this program was built with the nccl.h of NCCL {}.{}, and LibTorch has {}.{}; "
      "build it with -DNCCL_INCLUDE_DIR=FOLDER of that version's, or use gloo",
      NCCL_MAJOR, NCCL_MINOR, major, minor));
}

std::unique_ptr<Transport> make_nccl(const RankPlace& place, const C10dPlace& store, double timeout) {
  require_nccl_of_libtorch();
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = milliseconds(timeout);
  const int gpus = std::max(static_cast<int>(torch::cuda::device_count()), 1);
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(place.local_rank % gpus));
  return std::make_unique<C10dTransport<c10d::ProcessGroupNCCL>>(
      c10::make_intrusive<c10d::ProcessGroupNCCL>(store.for_backend("nccl"), place.rank, place.size, options),
      device);
}
#endif

#if defined(BILEVEL_HAS_GLOO) && defined(BILEVEL_HAS_NCCL)
// The machine and the GPU's place there, by which NCCL tells GPUs apart; empty where it cannot be used.
std::string gpu_text(const c10::Device& device) {
  std::array<char, 64> place = {};
  if (!can_use_nccl() ||
      cudaDeviceGetPCIBusId(place.data(), static_cast<int>(place.size()), device.index()) != cudaSuccess) {
    return "";
  }
  return machine_id() + " " + place.data();
}

// Which GPUs the ranks use is known when the first tensor on one comes, which is the same one on all ranks.
class TransportByDevice : public Transport {
 public:
  using Maker = std::function<std::unique_ptr<Transport>()>;
  TransportByDevice(std::unique_ptr<Transport> cpu, Maker make_gpu, Gather gather)
      : cpu_(std::move(cpu)), make_gpu_(std::move(make_gpu)), gather_(std::move(gather)) {}
  bool sum_(Tensor& contiguous) override { return of(contiguous).sum_(contiguous); }
  void broadcast_(Tensor& contiguous, int from) override { of(contiguous).broadcast_(contiguous, from); }
  Tensor scalar(double value) const override { return cpu_->scalar(value); }
  void leave() override {
    if (gpu_) gpu_->leave();
    cpu_->leave();
  }

 private:
  Transport& of(const Tensor& tensor) {
    if (!tensor.is_cuda()) return *cpu_;
    if (!decided_) {
      if (each_has_its_own_gpu(gather_(gpu_text(tensor.device())))) gpu_ = make_gpu_();
      decided_ = true;
    }
    return gpu_ ? *gpu_ : *cpu_;
  }
  std::unique_ptr<Transport> cpu_, gpu_;
  Maker make_gpu_;
  Gather gather_;
  bool decided_ = false;
};
#endif

}  // namespace

bool has_backend([[maybe_unused]] const std::string& backend) {
#ifdef BILEVEL_HAS_GLOO
  if (backend == "gloo") return true;
#endif
#ifdef BILEVEL_HAS_NCCL
  if (backend == "nccl") return true;
#endif
  return false;
}

bool has_short_sums() {
#ifdef BILEVEL_HAS_GLOO_LIBRARY
  return has_backend("gloo");
#else
  return false;
#endif
}

bool can_use_nccl() {
#ifdef BILEVEL_HAS_NCCL
  return has_nccl_of_libtorch();
#else
  return false;
#endif
}

bool each_has_its_own_gpu(const std::vector<std::string>& gpus) {
  const std::set<std::string> different(gpus.begin(), gpus.end());
  return different.size() == gpus.size() && different.count("") == 0;
}

std::unique_ptr<MeetingPlace> open_meeting_place(const RankPlace& place, double timeout) {
  return std::make_unique<C10dPlace>(place, timeout);
}

std::unique_ptr<Transport> make_transport(const std::string& backend, const RankPlace& place,
                                          MeetingPlace& store, double timeout,
                                          [[maybe_unused]] Gather gather) {
  [[maybe_unused]] const auto& c10d_store = dynamic_cast<const C10dPlace&>(store);
#ifdef BILEVEL_HAS_GLOO
  if (backend == "gloo") return make_gloo(place, c10d_store, timeout);
#endif
#ifdef BILEVEL_HAS_NCCL
  if (backend == "nccl") return make_nccl(place, c10d_store, timeout);
#endif
#if defined(BILEVEL_HAS_GLOO) && defined(BILEVEL_HAS_NCCL)
  if (backend == "gloo+nccl") {
    return std::make_unique<TransportByDevice>(
        make_gloo(place, c10d_store, timeout),
        [&c10d_store, place, timeout] { return make_nccl(place, c10d_store, timeout); }, std::move(gather));
  }
#endif
  throw std::invalid_argument(
      fmt::format("backend {} is not in this program (rank {}, timeout {})", backend, place.rank, timeout));
}

}  // namespace bilevel
