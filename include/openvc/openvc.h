/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OPENVC_OPENVC_H_
#define OPENVC_OPENVC_H_

/*
 * C interface of Open-VC Attention, for other languages: FP8 forward attention,
 * softmax(softmax_scale Q K^T) V. openvc/attention.hpp is the same for C++.
 *
 * Tensors are [batch, sequence, head, channel] with D channels, a multiple of 8 up to 128; K and V
 * share one shape, and their number of heads divides that of Q. Every function that can fail
 * returns a status, and openvc_last_error_message() says in words which argument, what was found,
 * what was expected and what to do. Nothing of the caller is modified. All functions may be called
 * from any thread.
 *
 * Null pointers are refused with OPENVC_INVALID_VALUE wherever nothing else is said. So are numbers
 * that are no value of their enumeration, and `reserved` fields that are not 0: later versions may
 * give them a meaning.
 */

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define OPENVC_API
#else
#define OPENVC_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum openvc_status {
  OPENVC_OK = 0,
  OPENVC_INVALID_VALUE = 1,  /* an argument has a value that no backend can honour */
  OPENVC_INVALID_TYPE = 2,   /* an argument has the wrong element type */
  OPENVC_UNSUPPORTED = 3,    /* meaningful, but not offered by this build or device */
  OPENVC_OUT_OF_MEMORY = 4,  /* an allocation failed */
  OPENVC_DEVICE_FAILURE = 5, /* the CUDA driver or runtime reported an error */
  OPENVC_INTERNAL_ERROR = 6  /* a defect of this library */
} openvc_status;

typedef enum openvc_element_type {
  OPENVC_BFLOAT16 = 0,
  OPENVC_FLOAT16 = 1,
  OPENVC_FLOAT32 = 2
} openvc_element_type;

typedef enum openvc_device_type { OPENVC_CPU = 0, OPENVC_CUDA = 1 } openvc_device_type;

typedef enum openvc_mask {
  OPENVC_MASK_NONE = 0,
  OPENVC_MASK_CAUSAL = 1 /* bottom right: query i sees the keys j <= i + Skv - Sq */
} openvc_mask;

typedef enum openvc_key_order {
  OPENVC_KEY_ORDER_MID_WINDOW = 0,
  OPENVC_KEY_ORDER_DESCENDING = 1
} openvc_key_order;

typedef enum openvc_choice {
  OPENVC_NEVER = 0,
  OPENVC_AUTOMATIC = 1, /* per head, from its statistics */
  OPENVC_ALWAYS = 2
} openvc_choice;

/* What a caller wants: the numeric options of openvc_options_set_budget(). */
typedef enum openvc_budget {
  OPENVC_BUDGET_FAST = 0,
  OPENVC_BUDGET_BALANCED = 1, /* the defaults */
  OPENVC_BUDGET_BEST = 2
} openvc_budget;

typedef enum openvc_value_scale {
  OPENVC_VALUE_SCALE_PER_CHANNEL = 0,
  OPENVC_VALUE_SCALE_PER_HEAD = 1
} openvc_value_scale;

/* A strided tensor that the caller owns. Enumerations are int32_t so that the layout of the
 * structures is the same for every compiler and every language. */
typedef struct openvc_tensor {
  void* data;           /* element [0, 0, 0, 0]; never written for an input */
  int32_t element_type; /* openvc_element_type */
  int32_t device_type;  /* openvc_device_type */
  int32_t device_index; /* CUDA ordinal; not used for the CPU */
  int32_t reserved;     /* must be 0 */
  int64_t shape[4];     /* batch, sequence, head, channel */
  int64_t strides[4];   /* in elements; channel stride 1, the others may be 0 or negative */
} openvc_tensor;

/* Fill with openvc_options_default() before changing a field. Later versions add fields at the end;
 * `size` tells the library which of them the caller knows: it ends with a field, and a size beyond
 * this structure is refused. A null pointer means the defaults. Every function checks all fields,
 * also those that it does not use. */
typedef struct openvc_options {
  size_t size;              /* sizeof(openvc_options) */
  int32_t mask;             /* openvc_mask */
  int32_t key_order;        /* openvc_key_order */
  float softmax_scale;      /* 2^-126 to 2^124; 0 for 1/sqrt(D) */
  int32_t smooth_keys;      /* 0 or 1: subtract the token mean of K */
  int32_t rotation;         /* openvc_choice: rotation of Q and K */
  int32_t max_extra_steps;  /* 0, 1, 2 or 4 k-steps of residual columns per head */
  float score_error_target; /* score error that a k-step must remove, 1/8 octaves */
  int32_t value_axes;       /* openvc_choice: V on principal axes */
  int32_t smooth_values;    /* 0 or 1: remove the channel means of V before rounding */
  int32_t value_scale;      /* openvc_value_scale */
  int32_t threads;          /* CPU threads, 0 for the default, which openvc_info_json() tells */
  int32_t reserved;         /* must be 0 */
  void* stream;             /* cudaStream_t for CUDA tensors */

  /* Keys that take part; null for all. Others do not exist, whatever they hold: the output is that
   * of a call without them, zero for a sequence without keys. Read on the device of the tensors.
   * For openvc_attention(), without a causal mask. */
  const int32_t* key_lengths;    /* [B]: the keys j < key_lengths[b], clamped to 0..Skv */
  const uint8_t* key_mask;       /* [B, Skv]: keys with a byte other than 0 */
  int64_t key_mask_batch_stride; /* in bytes; 0 for one mask of all sequences */
  int64_t key_mask_key_stride;   /* in bytes; 1 by default */

  /* Packed sequences of unlike lengths, which follow each other in tensors of batch 1; 0 sequences
   * for others. Sequence b has the queries cu_seqlens_q[b] <= i < cu_seqlens_q[b + 1], its keys
   * likewise, and the output of a call of its own; rows of no sequence are not written. Boundaries
   * are [sequences + 1], start with 0 and never fall; they are read on the device of the tensors,
   * on a GPU without waiting. max_seqlen_* are at least the longest. For openvc_attention(),
   * without key_lengths and key_mask. Memory on a GPU is that of so many sequences of the longest.
   */
  int64_t sequences;
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_k;
  int64_t max_seqlen_q;
  int64_t max_seqlen_k;
} openvc_options;

/* What the preparation decided for one head. */
typedef struct openvc_head_plan {
  int32_t extra_steps;
  int32_t rotated; /* 0 or 1: by Hadamard, or onto principal axes */
  int32_t score_exponent;
  float predicted_score_error;
} openvc_head_plan;

/* Quantised Q, K and V. Immutable; any number of threads may use one at the same time, on any
 * streams of its device: they wait for the preparation, and the memory is freed behind their work.
 * No stream has to live as long. For CUDA graphs see Prepared in openvc/attention.hpp. */
typedef struct openvc_prepared openvc_prepared;

/* "major.minor.patch". */
OPENVC_API const char* openvc_version(void);

/* Why the last call of this thread that returned a status other than OPENVC_OK failed. Valid until
 * the next failing call of this thread. */
OPENVC_API const char* openvc_last_error_message(void);

/* Writes info as JSON, terminated by a null character, if it fits into `capacity` bytes; `buffer`
 * may be null. Returns the size that is needed, terminator included; 0 if there is no memory for
 * it. */
OPENVC_API size_t openvc_info_json(char* buffer, size_t capacity);

/* Writes the defaults into the first `size` bytes of the structure, its size field included. */
OPENVC_API openvc_status openvc_options_default(openvc_options* options, size_t size);

/* Sets the numeric options, from smooth_keys to value_scale, to those of an openvc_budget; the
 * other fields stay. After openvc_options_default(), with a structure that holds all of them. */
OPENVC_API openvc_status openvc_options_set_budget(openvc_options* options, int32_t budget);

/* out [B, Sq, H, D] of q's element type. log_sum_exp: null, or [B, H, Sq] floats on the device of
 * q, natural logarithm, -infinity for a query that sees no key (its output is zero). */
OPENVC_API openvc_status openvc_attention(const openvc_tensor* q, const openvc_tensor* k,
                                          const openvc_tensor* v, const openvc_tensor* out,
                                          float* log_sum_exp, const openvc_options* options);

/* OPENVC_OK if openvc_attention() would run; OPENVC_UNSUPPORTED if not with these tensors, and the
 * message says why and what to do; OPENVC_INVALID_VALUE for null pointers to structures and options
 * that no call takes. Data pointers are not looked at and may be null. */
OPENVC_API openvc_status openvc_is_supported(const openvc_tensor* q, const openvc_tensor* k,
                                             const openvc_tensor* v, const openvc_options* options);

/* Quantises Q, K and V. *prepared must be released with openvc_prepared_destroy(); it is null after
 * a failure. */
OPENVC_API openvc_status openvc_prepare(const openvc_tensor* q, const openvc_tensor* k,
                                        const openvc_tensor* v, int with_log_sum_exp,
                                        const openvc_options* options, openvc_prepared** prepared);

/* The same with V residual repair of round(budget * Skv) tokens per head, 0 <= budget < 1. */
OPENVC_API openvc_status openvc_prepare_repair(const openvc_tensor* q, const openvc_tensor* k,
                                               const openvc_tensor* v, double budget,
                                               int with_log_sum_exp, const openvc_options* options,
                                               openvc_prepared** prepared);

/* Attention on prepared inputs. Only `threads` and `stream` of the options are used. */
OPENVC_API openvc_status openvc_attention_prepared(const openvc_prepared* prepared,
                                                   const openvc_tensor* out, float* log_sum_exp,
                                                   const openvc_options* options);

/* Exact attention in double precision for the queries rows[0 .. row_count), on CPU tensors. out
 * [B, row_count, H, D] and log_sum_exp (null or [B, H, row_count]) are contiguous. Of the options,
 * mask, softmax_scale (0 for 1/sqrt(D)) and threads are used. */
OPENVC_API openvc_status openvc_exact_attention(const openvc_tensor* q, const openvc_tensor* k,
                                                const openvc_tensor* v, const int64_t* rows,
                                                size_t row_count, double* out, double* log_sum_exp,
                                                const openvc_options* options);

/* Null is allowed and does nothing. */
OPENVC_API void openvc_prepared_destroy(openvc_prepared* prepared);

/* Shapes as [batch, sequence, head, channel]. */
OPENVC_API openvc_status openvc_prepared_query_shape(const openvc_prepared* prepared,
                                                     int64_t shape[4]);
OPENVC_API openvc_status openvc_prepared_key_shape(const openvc_prepared* prepared,
                                                   int64_t shape[4]);

/* What was prepared. A null pointer gives -1, or 0 bytes, and openvc_last_error_message(). */
OPENVC_API int32_t openvc_prepared_element_type(const openvc_prepared* prepared);
/* openvc_device_type; also its index, unless device_index is null. */
OPENVC_API int32_t openvc_prepared_device(const openvc_prepared* prepared, int32_t* device_index);
OPENVC_API int64_t openvc_prepared_repair_rows(const openvc_prepared* prepared);
OPENVC_API int openvc_prepared_has_log_sum_exp(const openvc_prepared* prepared);
OPENVC_API size_t openvc_prepared_bytes(const openvc_prepared* prepared);

/* Writes the plans of the first `capacity` heads, in the order batch * H + head, and their full
 * number to *count. `plans` may be null with capacity 0, `count` may be null. */
OPENVC_API openvc_status openvc_prepared_plans(const openvc_prepared* prepared,
                                               openvc_head_plan* plans, size_t capacity,
                                               size_t* count);

#ifdef __cplusplus
}
#endif

#endif /* OPENVC_OPENVC_H_ */
