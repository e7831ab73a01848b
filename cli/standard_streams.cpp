#include "cli/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "cli/common.h"

namespace bilevel::cli {
namespace {

struct Stream {
  int descriptor;
  int error = 0;  // errno of the first write that failed; nothing is written after it
};
Stream out{STDOUT_FILENO}, err{STDERR_FILENO};

ssize_t write_all(void* cookie, const char* bytes, size_t count) {
  auto& stream = *static_cast<Stream*>(cookie);
  for (size_t done = 0; done < count && stream.error == 0;) {
    const ssize_t written = ::write(stream.descriptor, bytes + done, count - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno == EAGAIN) {  // a pipe that another program made non-blocking
      ::pollfd ready{stream.descriptor, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      stream.error = errno;
    }
  }
  return static_cast<ssize_t>(count);  // what could not be written is reported at the end
}

std::FILE* guarded(Stream& stream, int buffering) {
  // Closed by the caller, its number would go to the next file that is opened, a checkpoint perhaps. Opened
  // for reading, every write fails as it should.
  if (::fcntl(stream.descriptor, F_GETFD) == -1) {
    const int substitute = ::open("/dev/null", O_RDONLY);
    if (substitute >= 0 && substitute != stream.descriptor) {
      ::dup2(substitute, stream.descriptor);
      ::close(substitute);
    }
  }
  std::FILE* file =
      ::fopencookie(&stream, "w", {.read = nullptr, .write = write_all, .seek = nullptr, .close = nullptr});
  if (file != nullptr) std::setvbuf(file, nullptr, buffering, BUFSIZ);
  return file;
}

}  // namespace

void guard_standard_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  if (std::FILE* file = guarded(out, ::isatty(STDOUT_FILENO) == 1 ? _IOLBF : _IOFBF)) stdout = file;
  if (std::FILE* file = guarded(err, _IONBF)) stderr = file;
}

int flush_standard_output(int exit_code) {
  std::fflush(stdout);
  if (out.error == 0) return exit_code;
  if (out.error == EPIPE) return exit_code == success ? 128 + SIGPIPE : exit_code;
  fmt::print(stderr, "bilevel: cannot write to standard output: {}; what was printed is not complete\n",
             std::strerror(out.error));
  return exit_code == success ? static_cast<int>(failure) : exit_code;
}

}  // namespace bilevel::cli
