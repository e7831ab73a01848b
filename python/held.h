#pragma once
// Python objects inside C++ ones, which may be copied and destroyed by threads that do not hold the
// interpreter's lock.

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>

namespace bilevel::python {

// `Parts` holds Python objects. The lock is taken when the last copy goes; an interpreter that is gone by
// then has taken them with it.
template <typename Parts>
std::shared_ptr<Parts> held(Parts parts) {
  return {new Parts(std::move(parts)), [](const Parts* all) {
            if (!Py_IsInitialized()) return;
            const pybind11::gil_scoped_acquire lock;
            delete all;
          }};
}

}  // namespace bilevel::python
