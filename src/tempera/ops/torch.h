#pragma once

// The parts of torch that are used here. <torch/torch.h> has them too, and costs every file that
// includes it five seconds more of the compiler, precompiled or not: it instantiates what nobody
// here calls.
#include <torch/autograd.h>
#include <torch/cuda.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>
