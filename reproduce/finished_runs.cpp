#include "reproduce/finished_runs.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "bilevel/data/write_file.h"
#include "bilevel/run/checkpoint.h"

namespace bilevel::reproduce {

FinishedRuns::FinishedRuns(const std::string& folder, bool resumed,
                           std::function<void(const std::string&)> warning)
    : folder_(folder + "/finished"), resumed_(resumed), warning_(std::move(warning)) {}

std::string FinishedRuns::path(size_t grid, size_t run) const {
  return fmt::format("{}/grid-{}-run-{}", folder_, grid, run);
}

std::optional<Packed> FinishedRuns::find(size_t grid, size_t run) const {
  const std::string file = path(grid, run);
  if (!resumed_ || !std::filesystem::exists(file)) return std::nullopt;
  try {
    const Checkpoint kept = read_checkpoint(file);
    const at::Tensor bytes = kept.tensors.at("result").contiguous();
    const auto* begin = bytes.data_ptr<uint8_t>();
    return Packed::from_cbor(begin, begin + bytes.numel());
  } catch (const std::exception& error) {
    warning_(fmt::format("{}: this run is made again", error.what()));
    return std::nullopt;
  }
}

void FinishedRuns::keep(size_t grid, size_t run, const Packed& result) const {
  std::vector<uint8_t> bytes = Packed::to_cbor(result);
  Checkpoint kept;
  kept.tensors["result"] =
      at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte).clone();
  make_folder(folder_);
  save_checkpoint(path(grid, run), kept);
}

}  // namespace bilevel::reproduce
