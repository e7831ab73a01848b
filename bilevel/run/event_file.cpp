#include "bilevel/run/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "bilevel/data/crc32.h"
#include "bilevel/data/write_file.h"

namespace bilevel {
namespace {

using Json = nlohmann::ordered_json;

// ---- protobuf's encoding, as far as events need it ----

class Message {
 public:
  Message& whole(int field, uint64_t value) { return key(field, 0).varint(value); }
  Message& bytes(int field, std::string_view value) {
    key(field, 2).varint(value.size());
    text_ += value;
    return *this;
  }
  Message& number(int field, double value) { return key(field, 1).fixed(std::bit_cast<uint64_t>(value), 8); }
  Message& number(int field, float value) { return key(field, 5).fixed(std::bit_cast<uint32_t>(value), 4); }
  Message& fixed(uint64_t value, int bytes) {  // little-endian
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>((value >> (8 * i)) & 0xffU);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  Message& key(int field, int kind) {
    return varint(static_cast<uint64_t>(field) << 3U | static_cast<uint64_t>(kind));
  }
  Message& varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7U) text_ += static_cast<char>((value & 0x7fU) | 0x80U);
    text_ += static_cast<char>(value);
    return *this;
  }
  std::string text_;
};

uint64_t masked(uint32_t crc) { return static_cast<uint32_t>((crc >> 15U | crc << 17U) + 0xa282ead8U); }

std::string framed(std::string_view event) {
  const std::string length = Message().fixed(event.size(), 8).text();
  Message record;
  record.fixed(event.size(), 8).fixed(masked(crc32c(length)), 4);
  return record.text() + std::string(event) + Message().fixed(masked(crc32c(event)), 4).text();
}

Message event_at(int64_t step) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Message event;
  event.number(1, std::chrono::duration<double>(now).count());
  if (step != 0) event.whole(2, static_cast<uint64_t>(step));
  return event;
}

// ---- what a record has ----

void add_numbers(const Json& object, const std::string& before, Message& summary) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) {
      add_numbers(value, fmt::format("{}{}/", before, name), summary);
    } else if (value.is_number() && (!before.empty() || name != "step")) {
      summary.bytes(1, Message().bytes(1, before + name).number(2, value.get<float>()).text());
    }
  }
}

uint64_t big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8U | static_cast<unsigned char>(byte);
  return value;
}

}  // namespace

EventFile::EventFile(std::string path) : path_(std::move(path)) {
  write_file(path_, framed(event_at(0).bytes(3, "brain.Event:2").text()));
}

void EventFile::record(const Json& line) {
  const auto step = line.find("step");
  ++records_;
  Message summary;
  add_numbers(line, "", summary);
  append(event_at(step != line.end() && step->is_number_integer() ? step->get<int64_t>() : records_)
             .bytes(5, summary.text())
             .text());
}

void EventFile::result(const Json& result) {
  Message summary;
  add_numbers(result, "", summary);
  append(event_at(0).bytes(5, summary.text()).text());
}

void EventFile::picture(const std::string& name, int64_t step, const std::string& png) {
  // A PNG begins with its size and kind: signature, length, "IHDR", width, height, depth, colour type.
  constexpr size_t header = 26, with_alpha = 4;
  if (png.size() < header || png.compare(1, 3, "PNG") != 0) {
    throw std::invalid_argument(fmt::format("{}: picture {}: is not a PNG image", path_, name));
  }
  const std::string_view bytes = png;
  const bool alpha = (static_cast<unsigned char>(png[25]) & with_alpha) != 0;
  Message image;
  image.whole(1, big_endian(bytes.substr(20, 4))).whole(2, big_endian(bytes.substr(16, 4)));
  image.whole(3, alpha ? 4 : 3).bytes(4, png);
  const Message value = Message().bytes(1, name).bytes(4, image.text());
  append(event_at(step).bytes(5, Message().bytes(1, value.text()).text()).text());
}

void EventFile::append(std::string_view event) const {
  const std::string text = framed(event);
  const int out = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  // One call: a process that is killed leaves the event or leaves it out.
  const bool written =
      out >= 0 && ::write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const std::string why = std::strerror(errno);
  if (out >= 0) ::close(out);
  if (!written) throw std::runtime_error(fmt::format("{}: cannot be written: {}", path_, why));
}

}  // namespace bilevel
