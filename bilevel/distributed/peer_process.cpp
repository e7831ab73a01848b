#include "bilevel/distributed/peer_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace bilevel {
namespace {

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown machine";
}

std::string boot_id() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(boot, id);
  return id;
}

// Two containers may have one name, and one machine may give two processes the same number.
std::string running_system() {
  const std::string id = boot_id();
  std::array<char, 128> space{};
  if (::readlink("/proc/self/ns/pid", space.data(), space.size() - 1) < 0) return id;
  return id + " " + space.data();
}

}  // namespace

std::string PeerProcess::text() const {
  return nlohmann::json{{"host", host}, {"system", system}, {"process", process}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

PeerProcess this_process() {
  return {.host = machine_name(), .system = running_system(), .process = static_cast<int>(::getpid())};
}

std::string machine_id() {
  const std::string id = boot_id();
  return id.empty() ? machine_name() : id;
}

PeerProcess read_process(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {.host = json.at("host").get<std::string>(),
          .system = json.at("system").get<std::string>(),
          .process = json.at("process").get<int>()};
}

ProcessState state_of(const PeerProcess& peer) {
  if (peer.system.empty() || peer.system != running_system()) return ProcessState::unknown;
  if (::kill(peer.process, 0) != 0 && errno == ESRCH) return ProcessState::gone;
  std::ifstream file(fmt::format("/proc/{}/stat", peer.process));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // "4242 (name) T ...": the name may hold anything, so the state is behind the last bracket.
  const size_t bracket = text.rfind(')');
  if (bracket == std::string::npos || bracket + 2 >= text.size()) return ProcessState::unknown;
  switch (text[bracket + 2]) {
    case 'Z':
    case 'X':
      return ProcessState::gone;
    case 'T':
    case 't':
      return ProcessState::stopped;
    default:
      return ProcessState::runs;
  }
}

}  // namespace bilevel
