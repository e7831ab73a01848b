#include "cli/command_line.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace bilevel::cli {
namespace {

// A standard stream that writes into memory while this lives.
class Captured {
 public:
  Captured(std::FILE*& stream, std::string& text) : stream_(stream), before_(stream), text_(text) {
    std::fflush(before_);
    memory_ = ::open_memstream(&bytes_, &size_);
    if (memory_ == nullptr) throw std::runtime_error("cannot open a stream in memory");
    stream_ = memory_;
  }
  ~Captured() {
    stream_ = before_;
    std::fclose(memory_);
    text_.append(bytes_, size_);
    std::free(bytes_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

 private:
  std::FILE*& stream_;
  std::FILE* before_;
  std::string& text_;
  std::FILE* memory_ = nullptr;
  char* bytes_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

int run(const std::vector<std::string>& arguments, std::string& out, std::string& err) {
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), "bilevel");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const Captured output(stdout, out), errors(stderr, err);
  return run_command_line(static_cast<int>(words.size()), pointers.data());
}

}  // namespace bilevel::cli
