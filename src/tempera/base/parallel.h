#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace tempera {

// A borrowed callable: two words, no allocation. The callable must outlive the call.
template <class Signature>
class FunctionRef;

template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>>>
  FunctionRef(F&& f)  // NOLINT(google-explicit-constructor): a lambda is passed in place
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}
  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

// The caller's threads. Kernels start none of their own: two pools on the same cores fight.
class Parallel {
 public:
  virtual ~Parallel() = default;
  // How many workers run may use; worker indices are below it.
  virtual int workers() const = 0;
  // Calls body(task, worker) once for every task in [0, tasks), in any order, and returns when all
  // are done. A worker runs one task at a time, so that it can own scratch memory. When a task
  // throws, tasks that have not begun may be left out, and the first exception comes out of run.
  virtual void run(int64_t tasks, FunctionRef<void(int64_t task, int worker)> body) = 0;
};

// Runs everything on the calling thread.
class Serial final : public Parallel {
 public:
  int workers() const override { return 1; }
  void run(int64_t tasks, FunctionRef<void(int64_t, int)> body) override {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
  }
};

// Threads of its own, for programs that have none (examples, tests). One run at a time: a second
// one from another thread, or from inside a task, throws Error.
std::unique_ptr<Parallel> make_thread_pool(int workers);

}  // namespace tempera
