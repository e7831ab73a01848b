#pragma once
// A checkpoint: named tensors and a JSON object in one file that is read back bit for bit, or refused.
// Reading one executes nothing and takes no memory that the file's own size does not back.
//
//     offset  bytes  what
//     0       8      "bilevel\n"
//     8       4      version of the format, 1
//     12      4      zero
//     16      8      length of the header
//     24             header, JSON: {"machine": {...}, "metadata": {...}, "data_bytes": N,
//                      "tensors": [{"name", "dtype", "shape", "offset", "bytes"}, ...]}
//                    tensors, row by row, one behind the other in the header's order
//     end-64  64     SHA-256 of all bytes before it, in hexadecimal
//
// Numbers are little-endian. Needs nlohmann-json where it is included.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "bilevel/core/tensor.h"
#include "bilevel/run/machine.h"

namespace bilevel {

struct Checkpoint {
  std::map<std::string, Tensor> tensors;  // any device; floats, doubles, halves, int64, int32 and bytes
  // Finite doubles come back exactly; JSON has no others, so that a NaN here is refused when saving.
  nlohmann::json metadata = nlohmann::json::object();
  MachineFacts machine;  // where it was saved; save_checkpoint fills it in by itself
  std::string warning;   // of load_checkpoint: that this is the previous one, and why; empty = all is well
};

// Writes beside `path`, waits until the disk has it, and renames; the file that was there stays as
// `path`.previous. A process killed at any time leaves a good one of the two. Throws std::runtime_error
// naming the file and the cause, and std::invalid_argument for what cannot be stored.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// The file at `path`, or the previous one if it is missing or damaged, as `warning` then says. Tensors
// are on the CPU. Throws std::runtime_error with the file, the offset, what was expected and what was found
// where neither can be read.
Checkpoint load_checkpoint(const std::string& path);

// One file, without the previous one.
Checkpoint read_checkpoint(const std::string& path);

std::string previous_checkpoint(const std::string& path);  // where the previous one is kept

}  // namespace bilevel
