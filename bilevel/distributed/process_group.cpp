#include "bilevel/distributed/process_group.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "bilevel/distributed/peer_process.h"
#include "bilevel/distributed/transport.h"

namespace bilevel {
namespace {

using GroupClock = std::chrono::steady_clock;

double elapsed_since(GroupClock::time_point begin) {
  return std::chrono::duration<double>(GroupClock::now() - begin).count();
}

// How long a rank looks for the cause before it says what it knows.
constexpr double looking_seconds = 3;

constexpr const char* failure_key = "failure";
std::string member_key(int rank) { return fmt::format("member/{}", rank); }
std::string waiting_key(int rank) { return fmt::format("waiting/{}", rank); }
std::string left_key(int rank) { return fmt::format("left/{}", rank); }

// `by`: the rank that found out, so that two which find the same do not both take theirs for the first.
std::string facts_text(const FailureFacts& facts, int by) {
  return nlohmann::json{{"rank", facts.rank},           {"host", facts.host},   {"process", facts.process},
                        {"exit_code", facts.exit_code}, {"cause", facts.cause}, {"by", by}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

FailureFacts read_facts(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {.rank = json.at("rank").get<int>(),
          .host = json.at("host").get<std::string>(),
          .process = json.at("process").get<int>(),
          .exit_code = json.at("exit_code").get<int>(),
          .cause = json.at("cause").get<std::string>()};
}

std::string place_text(int rank, int size, const std::string& host, int process) {
  if (process == 0) return fmt::format("rank {} of {}", rank, size);  // it never came
  return fmt::format("rank {} of {} (process {} on {})", rank, size, process, host);
}

std::string waited_text(double seconds) { return fmt::format("{:g} s", seconds); }

}  // namespace

void GroupOptions::validate() const {
  if (!backend.empty() && backend != "gloo" && backend != "nccl") {
    throw std::invalid_argument(fmt::format("backend = {}: choose gloo or nccl", backend));
  }
  if (!(timeout > 0) || !std::isfinite(timeout)) {
    throw std::invalid_argument(fmt::format("timeout = {}: must be positive and finite", timeout));
  }
}

RankFailure::RankFailure(const FailureFacts& facts, int size, bool first)
    : std::runtime_error(
          fmt::format("{}: {}", place_text(facts.rank, size, facts.host, facts.process), facts.cause)),
      facts_(facts),
      first_(first) {}

struct ProcessGroup::Parts {
  std::unique_ptr<MeetingPlace> store;
  std::unique_ptr<Transport> transport;
  std::vector<PeerProcess> members;  // by rank, once all have come
};

std::shared_ptr<ProcessGroup> ProcessGroup::join(const RankPlace& place, const GroupOptions& options) {
  options.validate();
  const std::string least = options.backend.empty() ? "gloo" : options.backend;
  if (!has_backend(least)) {
    throw std::invalid_argument(
        fmt::format("backend {}: this program was built without it; {}", least,
                    least == "gloo" ? "install Gloo's headers (Debian: libgloo-dev) and build again"
                                    : "build it with LibTorch for CUDA and nccl.h, or use gloo"));
  }
  std::shared_ptr<ProcessGroup> group(new ProcessGroup(place, options));
  group->meet();
  return group;
}

ProcessGroup::ProcessGroup(const RankPlace& place, const GroupOptions& options)
    : place_(place), options_(options), parts_(std::make_unique<Parts>()) {}

// The others may still be reading what a rank of the meeting place's process has read already.
ProcessGroup::~ProcessGroup() {
  if (parts_->members.size() < static_cast<size_t>(size())) return;  // they never met
  try {
    if (!failed_ && parts_->transport) parts_->transport->leave();
    parts_->store->set(left_key(rank()), "");
    if (parts_->store->ends_with_this_process()) wait_for_others(left_key);
  } catch (const std::exception&) {
    // The meeting place went first: nobody waits for this rank.
  }
}

void ProcessGroup::meet() {
  const auto begin = GroupClock::now();
  parts_->store = open_meeting_place(place_, options_.timeout);
  parts_->store->set(member_key(rank()), this_process().text());
  for (int other = 0; other < size(); ++other) {
    while (!parts_->store->has(member_key(other))) {
      throw_recorded_failure();
      if (elapsed_since(begin) > options_.timeout) {
        claim({.rank = other,
               .cause = fmt::format("did not come within {}: was it started, and with the same variables?",
                                    waited_text(options_.timeout))});
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    parts_->members.push_back(read_process(parts_->store->get(member_key(other))));
  }
  agree_on_backend();
  try {
    parts_->transport = make_transport(options_.backend, place_, *parts_->store, options_.timeout,
                                       [this](const std::string& mine) { return gather(mine); });
  } catch (const std::exception& error) {
    explain(error.what());
  }
  gather("");  // one that left while another was still connecting to it would look like a rank that died
}

void ProcessGroup::agree_on_backend() {
  const bool given = !options_.backend.empty();
  const std::vector<std::string> all = gather(given ? options_.backend : can_use_nccl() ? "any" : "");
  const auto text = [](const std::string& said) {
    return said.empty() || said == "any" ? "none given" : said;
  };
  for (int other = 1; other < size(); ++other) {
    const std::string theirs = text(all[static_cast<size_t>(other)]), first = text(all[0]);
    if (theirs == first) continue;
    FailureFacts facts = facts_of(
        other, fmt::format("was started with a different backend ({}) from rank 0 ({}); start all of them "
                           "in the same way",
                           theirs, first));
    facts.exit_code = 2;
    claim(facts);
  }
  if (given) return;
  options_.backend = std::count(all.begin(), all.end(), "any") == size() ? "gloo+nccl" : "gloo";
}

std::string ProcessGroup::name_of(int rank) const {
  const auto at = static_cast<size_t>(rank);
  if (at >= parts_->members.size()) return fmt::format("rank {} of {}", rank, size());
  return place_text(rank, size(), parts_->members[at].host, parts_->members[at].process);
}

// ---- operations ----

template <typename Call>
void ProcessGroup::collective(int64_t bytes, const Call& call) {
  const auto begin = GroupClock::now();
  try {
    call();
  } catch (const RankFailure&) {
    throw;
  } catch (const std::exception& error) {
    explain(error.what());
  }
  ++communication_.calls;
  communication_.bytes += bytes;
  communication_.seconds += elapsed_since(begin);
}

void ProcessGroup::transport_sum(Tensor& contiguous) {
  collective(static_cast<int64_t>(contiguous.nbytes()), [&] {
    if (parts_->transport->sum_(contiguous)) ++communication_.direct;
  });
}

void ProcessGroup::sum_(Tensor& tensor) {
  Tensor whole = tensor.detach();
  if (!whole.is_contiguous()) whole = whole.contiguous();
  transport_sum(whole);
  if (!whole.is_same(tensor) && whole.data_ptr() != tensor.data_ptr()) tensor.copy_(whole);
}

void ProcessGroup::sum_(const std::vector<Tensor*>& tensors) {
  if (tensors.size() == 1) return sum_(*tensors.front());
  std::vector<Tensor> flat;
  for (const Tensor* tensor : tensors) flat.push_back(tensor->detach().reshape({-1}));
  Tensor joined = at::cat(flat);
  transport_sum(joined);
  // The longest stays where it is; a loss that somebody keeps must not keep a whole gradient alive.
  const auto shorter = [](const Tensor* a, const Tensor* b) { return a->numel() < b->numel(); };
  const Tensor* longest = *std::max_element(tensors.begin(), tensors.end(), shorter);
  int64_t at = 0;
  for (Tensor* tensor : tensors) {
    const int64_t count = tensor->numel();
    const Tensor part = joined.narrow(0, at, count).view(tensor->sizes());
    *tensor = tensor == longest ? part : part.clone();
    at += count;
  }
}

void ProcessGroup::broadcast_(Tensor& tensor, int from) {
  Tensor whole = tensor.detach().contiguous();
  collective(static_cast<int64_t>(whole.nbytes()), [&] { parts_->transport->broadcast_(whole, from); });
  if (whole.data_ptr() != tensor.data_ptr()) tensor.copy_(whole);
}

void ProcessGroup::barrier() {
  Tensor one = parts_->transport->scalar(1);
  sum_(one);
}

bool ProcessGroup::any(bool mine) {
  Tensor count = parts_->transport->scalar(mine ? 1 : 0);
  sum_(count);
  return count.item<double>() > 0;
}

std::vector<std::string> ProcessGroup::gather(const std::string& mine) { return gather(mine, false); }
std::vector<std::string> ProcessGroup::gather_at_leisure(const std::string& mine) {
  return gather(mine, true);
}

// Rare and short: by the place where the ranks met.
std::vector<std::string> ProcessGroup::gather(const std::string& mine, bool at_leisure) {
  const int64_t number = gathered_++;
  const auto key = [&](int rank) { return fmt::format("gather/{}/{}", number, rank); };
  const auto begin = GroupClock::now();
  std::vector<std::string> all;
  try {
    parts_->store->set(key(rank()), mine);
    for (int other = 0; other < size(); ++other) {
      while (!parts_->store->has(key(other))) {
        throw_recorded_failure();
        if (elapsed_since(begin) > options_.timeout) {
          if (!at_leisure) explain("");
          look_at_processes();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(at_leisure ? 20 : 2));
      }
      all.push_back(parts_->store->get(key(other)));
    }
  } catch (const RankFailure&) {
    throw;
  } catch (const std::exception& error) {
    explain(error.what());
  }
  return all;
}

std::string ProcessGroup::broadcast(const std::string& text, int from) {
  return gather(rank() == from ? text : std::string())[static_cast<size_t>(from)];
}

// ---- failures ----

void ProcessGroup::throw_recorded_failure() {
  if (!parts_->store->has(failure_key)) return;
  failed_ = true;
  throw RankFailure(read_facts(parts_->store->get(failure_key)), size(), false);
}

void ProcessGroup::claim(FailureFacts facts) {
  failed_ = true;
  bool first = true;
  try {
    const std::string mine = facts_text(facts, rank()),
                      recorded = parts_->store->set_first(failure_key, mine);
    first = recorded == mine;
    facts = read_facts(recorded);
  } catch (const std::exception&) {
    // Nobody keeps the failure any more: every rank says what it knows.
  }
  throw RankFailure(facts, size(), first);
}

bool ProcessGroup::fail(const std::string& cause, int exit_code) noexcept {
  failed_ = true;
  try {
    const PeerProcess self = this_process();
    const std::string mine = facts_text(
        {.rank = rank(), .host = self.host, .process = self.process, .exit_code = exit_code, .cause = cause},
        rank());
    const bool first = parts_->store->set_first(failure_key, mine) == mine;
    if (!parts_->store->ends_with_this_process()) return first;
    wait_for_others(waiting_key);  // they must have read it before the place is gone
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return first;
  } catch (const std::exception&) {
    return true;
  }
}

void ProcessGroup::wait_for_others(std::string (*key)(int rank)) {
  const auto begin = GroupClock::now();
  for (int other = 0; other < size(); ++other) {
    while (other != rank() && !parts_->store->has(key(other)) && elapsed_since(begin) < looking_seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

FailureFacts ProcessGroup::facts_of(int rank, const std::string& cause) const {
  const PeerProcess& process = parts_->members[static_cast<size_t>(rank)];
  return {.rank = rank, .host = process.host, .process = process.process, .cause = cause};
}

void ProcessGroup::look_at_processes() {
  for (int other = 0; other < static_cast<int>(parts_->members.size()); ++other) {
    if (other == rank()) continue;
    const ProcessState state = state_of(parts_->members[static_cast<size_t>(other)]);
    if (state == ProcessState::runs || state == ProcessState::unknown) continue;
    throw_recorded_failure();  // it may have left a word just before
    claim(facts_of(other, state == ProcessState::gone
                              ? "was killed, or ended without a word"
                              : fmt::format("is stopped (SIGSTOP), and the others waited {} for it",
                                            waited_text(options_.timeout))));
  }
}

// A rank that fails writes its cause before it leaves. One that was killed could not, one that is stopped or
// hangs does not know.
void ProcessGroup::explain(const std::string& symptom) {
  std::vector<int> silent;
  try {
    parts_->store->set(waiting_key(rank()), "");
    const auto begin = GroupClock::now();
    do {
      throw_recorded_failure();
      look_at_processes();
      silent.clear();
      for (int other = 0; other < size(); ++other) {
        if (!parts_->store->has(waiting_key(other))) silent.push_back(other);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } while (elapsed_since(begin) < looking_seconds);
  } catch (const RankFailure&) {
    throw;
  } catch (const std::exception&) {
    silent = {0};  // where rank 0 keeps the meeting place, it went with it
  }
  if (silent.empty() || silent.front() >= static_cast<int>(parts_->members.size())) {
    const PeerProcess self = this_process();
    claim({.rank = rank(), .host = self.host, .process = self.process, .cause = symptom});
  }
  claim(facts_of(silent.front(), fmt::format("has not answered for {}: it hangs, or its machine is gone ({})",
                                             waited_text(options_.timeout), symptom)));
}

}  // namespace bilevel
