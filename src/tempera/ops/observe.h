#pragma once

#include "tempera/ops/attention.h"

namespace tempera::ops {

// Sees the calls of attention() that this thread makes while it lives, calls through a layer
// included. One at a time: a second one takes the place of the first until it ends.
class AttentionObserver {
 public:
  AttentionObserver();
  virtual ~AttentionObserver();
  AttentionObserver(const AttentionObserver&) = delete;
  AttentionObserver& operator=(const AttentionObserver&) = delete;

  // May change what is computed and what is wanted beside `out`.
  virtual void before(AttentionArgs& args) = 0;
  virtual void after(const AttentionArgs& args, const AttentionResult& result) = 0;

 private:
  AttentionObserver* outer_;
};

// Of this thread; null: none.
AttentionObserver* attention_observer();

}  // namespace tempera::ops
