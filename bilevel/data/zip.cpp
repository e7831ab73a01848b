#include "bilevel/data/zip.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>
#include <unordered_set>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/file_error.h"

#ifdef BILEVEL_HAS_ZIP
#include <zip.h>
#endif

namespace bilevel {

#ifdef BILEVEL_HAS_ZIP
struct ZipArchive::Handle {
  zip_t* zip = nullptr;
  explicit Handle(zip_t* opened) : zip(opened) {}
  ~Handle() { zip_discard(zip); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

namespace {

constexpr int64_t zip_ratio = 1032;  // deflate cannot expand a byte to more
constexpr std::string_view damaged = "the archive is damaged: copy or download it again";

// Names come from the file: what is not plain text must not reach a terminal.
std::string printable(std::string_view name) {
  std::string text;
  for (const char letter : name.substr(0, 200)) {
    text += static_cast<unsigned char>(letter) < 32 || letter == 127 ? '?' : letter;
  }
  return text;
}

[[noreturn]] void member_error(const std::string& path, std::string_view name, std::string_view expected,
                               std::string_view found, std::string_view hint) {
  throw std::runtime_error(
      fmt::format("{}: member {}: expected {}, found {}; {}", path, printable(name), expected, found, hint));
}

// A name that leads out of the archive's folder, or that two systems would read differently.
bool is_safe(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != std::string_view::npos ||
      name.find(':') != std::string_view::npos) {
    return false;
  }
  for (const char letter : name) {
    if (static_cast<unsigned char>(letter) < 32) return false;
  }
  if (name.back() == '/') name.remove_suffix(1);  // a folder
  for (;;) {
    const size_t slash = name.find('/');
    const std::string_view step = name.substr(0, slash);
    if (step.empty() || step == "." || step == "..") return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

std::string message_of(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

ZipMember checked_member(const std::string& path, int64_t file_size, const zip_stat_t& entry,
                         const ZipLimits& limits) {
  constexpr zip_uint64_t needed =
      ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if ((entry.valid & needed) != needed) {
    byte_error(path, 0, "members with a name and sizes", "one without", damaged);
  }
  const std::string_view name = entry.name;
  const auto fail = [&](std::string_view expected, std::string_view found, std::string_view hint) {
    member_error(path, name, expected, found, hint);
  };
  if (!is_safe(name)) {
    fail("a relative name of plain letters, without . and ..", "this one",
         "the archive is not to be trusted");
  }
  if (entry.encryption_method != ZIP_EM_NONE) {
    fail("a member without a password", "an encrypted one", "unpack it and give the folder");
  }
  if (entry.comp_method != ZIP_CM_STORE && entry.comp_method != ZIP_CM_DEFLATE) {
    fail("a member that is stored or deflated", fmt::format("compression method {}", entry.comp_method),
         "unpack the archive and give the folder");
  }
  if (entry.size > static_cast<zip_uint64_t>(limits.member_bytes)) {
    fail(fmt::format("at most {} bytes", limits.member_bytes), fmt::format("{}", entry.size),
         "the archive is not what it should be");
  }
  if (entry.comp_size > static_cast<zip_uint64_t>(file_size)) {
    fail(fmt::format("at most the file's {} bytes", file_size), fmt::format("{}", entry.comp_size), damaged);
  }
  const auto stored = static_cast<int64_t>(entry.comp_size);
  const auto size = static_cast<int64_t>(entry.size);
  const bool possible = entry.comp_method == ZIP_CM_STORE ? size == stored : size <= zip_ratio * stored;
  if (!possible) {
    fail(fmt::format("a size that its {} bytes can hold", stored), fmt::format("{} bytes", size), damaged);
  }
  return {std::string(name), size, name.back() == '/'};
}

}  // namespace

bool has_zip() { return true; }

ZipArchive::ZipArchive(const std::string& path, const ZipLimits& limits) : path_(path) {
  const int64_t file_size = InputFile(path).size();  // says so if it is missing or no file
  int code = 0;
  zip_t* opened = zip_open(path.c_str(), ZIP_RDONLY, &code);
  if (opened == nullptr) byte_error(path, 0, "a zip archive", message_of(code), damaged);
  handle_ = std::make_unique<Handle>(opened);
  const zip_int64_t count = zip_get_num_entries(opened, 0);
  if (count > limits.members) {
    byte_error(path, 0, fmt::format("a zip archive of at most {} members", limits.members),
               fmt::format("{}", count), "the archive is not what it should be");
  }
  std::unordered_set<std::string> names;
  int64_t total = 0;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t entry;
    if (zip_stat_index(opened, static_cast<zip_uint64_t>(i), 0, &entry) != 0) {
      byte_error(path, 0, fmt::format("member {} of a zip archive", i), zip_strerror(opened), damaged);
    }
    members_.push_back(checked_member(path, file_size, entry, limits));
    const ZipMember& member = members_.back();
    if (!names.insert(member.name).second) {
      member_error(path, member.name, "each name once", "it twice", damaged);
    }
    total += member.size;
    if (total > limits.total_bytes) {
      member_error(path, member.name, fmt::format("members of at most {} bytes in all", limits.total_bytes),
                   "more", "the archive is not what it should be");
    }
  }
}

std::string ZipArchive::read(size_t position) const {
  const ZipMember& member = members_.at(position);
  const auto fail = [&](std::string_view found) {
    member_error(path_, member.name, fmt::format("{} bytes with their checksum", member.size), found,
                 damaged);
  };
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(zip_fopen_index(handle_->zip, position, 0),
                                                               zip_fclose);
  if (!file) fail(zip_strerror(handle_->zip));
  std::string bytes(static_cast<size_t>(member.size), '\0');
  size_t got = 0;
  // One byte more than there should be: only at its end does libzip compare the checksum.
  char more = 0;
  for (;;) {
    const bool full = got == bytes.size();
    const zip_int64_t some = full ? zip_fread(file.get(), &more, 1)
                                  : zip_fread(file.get(), bytes.data() + got, bytes.size() - got);
    if (some < 0) fail(zip_error_strerror(zip_file_get_error(file.get())));
    if (some == 0 && !full) fail(fmt::format("{} bytes", got));
    if (some == 0) return bytes;
    if (full) fail("more bytes");
    got += static_cast<size_t>(some);
  }
}
#else
struct ZipArchive::Handle {};

bool has_zip() { return false; }

ZipArchive::ZipArchive(const std::string& path, const ZipLimits&) : path_(path) {
  byte_error(path, 0, "a format that this build of bilevel can read, which has no libzip", "a zip archive",
             "unpack it and give the folder, or install libzip-dev and build again");
}

std::string ZipArchive::read(size_t) const { return {}; }
#endif

ZipArchive::~ZipArchive() = default;

}  // namespace bilevel
