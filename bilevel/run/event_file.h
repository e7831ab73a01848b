#pragma once
// A run's records for TensorBoard: events.out.tfevents.bilevel beside metrics.jsonl, written without
// TensorFlow. The file is TFRecords (a length and the bytes, each with a masked CRC-32C) of Event messages;
// both are small enough to write by hand:
//
//     Event         1 wall_time double, 2 step int64, 3 file_version string, 5 summary Summary
//     Summary       1 value Value, repeated
//     Value         1 tag string, 2 simple_value float, 4 image Image
//     Image         1 height, 2 width, 3 colorspace, 4 encoded_image_string
//
// Needs nlohmann-json where it is included.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace bilevel {

class EventFile {
 public:
  static std::string path_in(const std::string& folder) { return folder + "/events.out.tfevents.bilevel"; }

  explicit EventFile(std::string path);  // a new one, in the place of one that is there

  // A line of metrics.jsonl: its numbers, and those in its objects as NAME/PART, at its "step".
  void record(const nlohmann::ordered_json& line);
  // The numbers of a result, at step 0.
  void result(const nlohmann::ordered_json& summary);
  void picture(const std::string& name, int64_t step, const std::string& png);
  int64_t records() const { return records_; }

 private:
  void append(std::string_view event) const;

  std::string path_;
  int64_t records_ = 0;
};

}  // namespace bilevel
