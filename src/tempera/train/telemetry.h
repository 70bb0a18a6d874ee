#pragma once

#include <vector>

#include "tempera/nn/model.h"
#include "tempera/train/checkpoint.h"

// What a watched step says of a training, beside loss and speed.
namespace tempera::train {

// A number for each group of parameters that is watched together (embedding, attention, mlp, ...).
using GroupNumbers = std::vector<double>;

// The squared norms of the gradients that the parameters have, summed by group.
GroupNumbers squared_norms(const std::vector<nn::NamedParameter>& parameters);
// The norms by the name of the group, of the groups that these parameters are in.
Json norms_by_group(const GroupNumbers& squares, const std::vector<nn::NamedParameter>& parameters);

// What every attention does with the rows of a batch, in a pass without gradients; the model is in
// eval mode afterwards:
//
//   heads          how many each attention has
//   layers         of each attention
//     layer          "0"; of an encoder-decoder "encoder 0", "decoder 0", "cross 0"
//     entropy        least, lower quartile, median, upper quartile and largest over the heads: of
//                    the mean entropy of a row's weights, in nats
//     largest_logit  the same of the largest logit
//     temperature    of 1 / the mean factor that a method puts on a head's logits; absent: none
//     key_scale, value_scale   of the mean factors on keys and values; absent: none
Json attention_numbers(nn::Model& model, const nn::Batch& batch);

}  // namespace tempera::train
