// graph.hpp - captures what is enqueued on a CUDA stream and launches it again, by the driver's
// own calls, looked up at run time. NVIDIA only.
#pragma once

#include <dlfcn.h>

#include <string>

namespace gpu_test {

class graph {
 public:
  // Texts: "" or what failed.
  std::string begin(void* stream) {
    stream_ = stream;
    // Graphs are made in the thread's current context, which a program like this one never set.
    void* context = nullptr;
    if (std::string failed = call("cuStreamGetCtx", stream_, &context); !failed.empty())
      return failed;
    if (std::string failed = call("cuCtxSetCurrent", context); !failed.empty()) return failed;
    return call("cuStreamBeginCapture_v2", stream_, 1);  // thread-local
  }
  std::string end() {
    if (std::string failed = call("cuStreamEndCapture", stream_, &graph_); !failed.empty())
      return failed;
    return call("cuGraphInstantiateWithFlags", &executable_, graph_, 0ull);
  }
  std::string launch() { return call("cuGraphLaunch", executable_, stream_); }

 private:
  template <class... Arguments>
  std::string call(const char* name, Arguments... arguments) {
    static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(driver, name));
    if (function == nullptr) return std::string("no ") + name;
    const int outcome = function(arguments...);
    return outcome == 0 ? "" : std::string(name) + ": " + std::to_string(outcome);
  }

  void* stream_ = nullptr;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
};

}  // namespace gpu_test
