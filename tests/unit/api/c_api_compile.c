/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled as C: the header must be C, and a C program must be able to use all of it. */
#include "unit/api/c_api_compile.h"

#include <stddef.h>

void openvc_test_fill_tensor(openvc_tensor* tensor, void* data, int64_t sequence, int64_t heads) {
  int axis;
  tensor->data = data;
  tensor->element_type = OPENVC_FLOAT32;
  tensor->device_type = OPENVC_CPU;
  tensor->device_index = 0;
  tensor->reserved = 0;
  tensor->shape[0] = 1;
  tensor->shape[1] = sequence;
  tensor->shape[2] = heads;
  tensor->shape[3] = 128;
  tensor->strides[3] = 1;
  for (axis = 2; axis >= 0; --axis) {
    tensor->strides[axis] = tensor->strides[axis + 1] * tensor->shape[axis + 1];
  }
}

openvc_status openvc_test_attention(const openvc_tensor* q, const openvc_tensor* k,
                                    const openvc_tensor* v, const openvc_tensor* out,
                                    float* log_sum_exp) {
  openvc_options options;
  openvc_status status = openvc_options_default(&options, sizeof options);
  if (status != OPENVC_OK) return status;
  options.threads = 1;
  status = openvc_is_supported(q, k, v, &options);
  if (status != OPENVC_OK) return status;
  return openvc_attention(q, k, v, out, log_sum_exp, &options);
}

openvc_status openvc_test_repaired_attention(const openvc_tensor* q, const openvc_tensor* k,
                                             const openvc_tensor* v, double budget,
                                             const openvc_tensor* out) {
  openvc_prepared* prepared = NULL;
  openvc_status status = openvc_prepare_repair(q, k, v, budget, 0, NULL, &prepared);
  if (status != OPENVC_OK) return status;
  status = openvc_attention_prepared(prepared, out, NULL, NULL);
  openvc_prepared_destroy(prepared);
  return status;
}
