// Finding the listed elements of a gradient: one ordered pass that appends each word's values and
// mask to the lists of the word's owner.
//
// Reading in memory order and appending to n streams costs half of what reading in owner order
// does, because a gradient is far larger than a cache and its processor prefetches ahead.
#pragma once

#include "core/buffer.h"
#include "core/cpu_features.h"
#include "core/dgc_pass.h"
#include "core/gradient.h"
#include "core/placement.h"
#include "core/selection.h"

namespace zen {

// Lists every element of `range` with x != 0 (NaN included) and rewrites -0.0 to +0.0 in the
// gradient. The result has one entry per owner; entries are slices of three shared allocations.
// Throws InvalidArgument if the gradient and the placement differ in size.
Selection select(const Gradient& gradient, const Placement& placement, WordRange range,
                 const Allocate& allocate, Isa isa = preferred_isa());

// Lists what `pass` sends instead, in the same single pass over the gradient and over the pass's
// memory. The gradient is zero in `range` afterwards; under a placement of elements it holds what
// is sent. REQUIRES: the ranges of one bucket are selected in ascending order, with the same pass.
Selection dgc_select(const Gradient& gradient, const Placement& placement, WordRange range,
                     DgcPass& pass, const Allocate& allocate, Isa isa = preferred_isa());

// Throws InvalidArgument if the gradient, the placement and the range do not fit each other.
void check_selectable(const Gradient& gradient, const Placement& placement, WordRange range);

// What dgc_select() draws of a range, planned instead: samples are thinned out at the same moments.
// REQUIRES: a placement of words.
void plan_samples(DgcSampler& sampler, const Placement& placement, WordRange range);

}  // namespace zen
