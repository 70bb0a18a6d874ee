#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tempera/adapt/measure.h"
#include "tempera/nn/model.h"

// How long a calibration takes, before it begins.
namespace tempera::adapt {

// Tokens that go through a model in windows of one length.
struct Windows {
  int64_t length = 0;
  int64_t tokens = 0;
  double passes = 1;  // what a token takes, in forward passes
};

// Of one measurement, at most: a text may be shorter.
std::vector<Windows> windows_of(const MeasureOptions& options);
int64_t tokens_of(std::span<const Windows> windows);

// Of a step that learns temperatures and norm gains: the weights have no gradient of their own.
double passes_of_learning(bool recompute);

// How long they take, by the time of a short forward pass of this model on its device.
double estimate_seconds(nn::Model& model, std::span<const Windows> windows);

}  // namespace tempera::adapt
