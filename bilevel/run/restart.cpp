#include "bilevel/run/restart.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bilevel/run/blas_kernels.h"

namespace bilevel {

void restart_with_best_settings(char** argv) {
  std::vector<std::pair<std::string, std::string>> variables = variables_for_best_kernels();
  if (std::getenv("OMP_WAIT_POLICY") == nullptr && std::getenv("GOMP_SPINCOUNT") == nullptr) {
    variables.emplace_back("GOMP_SPINCOUNT", "10000");
  }
  if (variables.empty()) return;
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  // By its own path, so that ps and killall go on knowing the program by its name; the link itself also works
  // where the file was replaced meanwhile.
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) ::execv(program.c_str(), argv);
  ::execv("/proc/self/exe", argv);
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());  // children may fare better
}

}  // namespace bilevel
