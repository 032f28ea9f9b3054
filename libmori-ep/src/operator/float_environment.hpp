// float_environment.hpp - arithmetic that does not depend on the caller: with a
// pool of one worker, kernels run on the calling thread, which may have set
// another rounding mode or flush-to-zero. The default environment holds
// for the object's life; new threads inherit it.
#pragma once

#include <cfenv>

namespace mori::ep_core {

class default_float_environment {
 public:
  default_float_environment() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~default_float_environment() { std::fesetenv(&callers_); }
  default_float_environment(const default_float_environment&) = delete;
  default_float_environment& operator=(const default_float_environment&) = delete;

 private:
  std::fenv_t callers_;
};

}  // namespace mori::ep_core
