#include "tempera/ops/observe.h"

namespace tempera::ops {
namespace {

AttentionObserver*& current() {
  thread_local AttentionObserver* observer = nullptr;
  return observer;
}

}  // namespace

AttentionObserver::AttentionObserver() : outer_(current()) { current() = this; }

AttentionObserver::~AttentionObserver() { current() = outer_; }

AttentionObserver* attention_observer() { return current(); }

}  // namespace tempera::ops
