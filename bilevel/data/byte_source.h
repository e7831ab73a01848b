#pragma once
// The content of a file as a stream of bytes, whether it is stored plain, as .gz or as .xz. A compressed file
// can promise terabytes in a kilobyte, so every stream has a limit, and nothing takes memory for bytes that
// have not arrived.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace bilevel {

// A regular file, opened for reading: a pipe or a device has no size to check a header against.
class InputFile {
 public:
  explicit InputFile(const std::string& path);  // throws std::runtime_error
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  size_t read(char* to, size_t count);  // fewer than count only at the file's end
  void rewind();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  int64_t size_ = 0;
  std::unique_ptr<std::FILE, Close> file_;
};

class ByteSource {
 public:
  ByteSource(InputFile file, int64_t limit) : file_(std::move(file)), limit_(limit) {}
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Fewer than count only at the content's end. Throws std::runtime_error where the content is damaged or
  // goes beyond the limit.
  size_t read(char* to, size_t count);
  int64_t offset() const { return offset_; }  // bytes of content read so far
  const std::string& path() const { return file_.path(); }
  // A bound on the content's length that is known before it is read; exact for a plain file.
  virtual int64_t most_bytes() const = 0;

 protected:
  virtual size_t read_some(char* to, size_t count) = 0;  // 0 at the end
  InputFile& file() { return file_; }
  const InputFile& file() const { return file_; }
  int64_t limit() const { return limit_; }

 private:
  InputFile file_;
  int64_t limit_;
  int64_t offset_ = 0;
};

// Tells the compression by the file's first bytes, not by its name. `limit` is in bytes of content.
std::unique_ptr<ByteSource> open_bytes(const std::string& path, int64_t limit);

// Whether open_bytes would take the file's bytes as they are.
bool is_stored_plain(const std::string& path);

// The next `count` bytes, which a header promised as `what`; a promise that the file cannot keep is refused
// before memory is taken.
std::string read_promised(ByteSource& source, int64_t count, std::string_view what);
// Throws unless the content ends here.
void expect_end(ByteSource& source, std::string_view after);

// The whole content.
std::string read_file(const std::string& path, int64_t limit);

}  // namespace bilevel
