/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OPENVC_TESTS_UNIT_API_C_API_COMPILE_H_
#define OPENVC_TESTS_UNIT_API_C_API_COMPILE_H_

#include "openvc/openvc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A contiguous float32 tensor [1, sequence, heads, 128]. */
void openvc_test_fill_tensor(openvc_tensor* tensor, void* data, int64_t sequence, int64_t heads);

openvc_status openvc_test_attention(const openvc_tensor* q, const openvc_tensor* k,
                                    const openvc_tensor* v, const openvc_tensor* out,
                                    float* log_sum_exp);

openvc_status openvc_test_repaired_attention(const openvc_tensor* q, const openvc_tensor* k,
                                             const openvc_tensor* v, double budget,
                                             const openvc_tensor* out);

#ifdef __cplusplus
}
#endif

#endif /* OPENVC_TESTS_UNIT_API_C_API_COMPILE_H_ */
