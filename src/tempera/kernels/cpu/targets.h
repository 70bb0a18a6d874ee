#pragma once

// Which of Highway's targets are compiled; before any Highway header. Baseline, AVX2 and AVX-512
// cover the machines that people have; the steps between them would only cost build time.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
