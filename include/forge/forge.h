/* The C interface of Forge: load a model, hold a session, generate and chat.
 *
 * Every function that can fail returns NULL or a nonzero status; forge_last_error() then has a
 * sentence about it, for the calling thread. Texts are UTF-8. A model may be used by several threads at
 * once, each with a session of its own; a session by one thread at a time.
 *
 * Structs begin with their size, so that a program built against an older header keeps working: fill
 * them with the function of the same name and _init. Compatible within one major version. */
#ifndef FORGE_FORGE_H
#define FORGE_FORGE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FORGE_API __attribute__((visibility("default")))
#else
#define FORGE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define FORGE_VERSION_MAJOR 0
#define FORGE_VERSION_MINOR 1

typedef struct forge_model forge_model;
typedef struct forge_session forge_session;

/* What kind of failure it was. */
typedef enum forge_status {
    FORGE_OK = 0,
    FORGE_INVALID_INPUT = 1,   /* a file or argument is wrong */
    FORGE_UNSUPPORTED = 2,     /* well formed, but not implemented */
    FORGE_NOT_FOUND = 3,
    FORGE_OUT_OF_MEMORY = 4,
    FORGE_IO = 5,              /* the operating system refused */
    FORGE_INTERNAL = 6         /* a bug of Forge */
} forge_status;

/* "0.1.0" */
FORGE_API const char* forge_version(void);
/* About the last failure on this thread; never NULL. Valid until the next call on this thread. */
FORGE_API const char* forge_last_error(void);
FORGE_API forge_status forge_last_status(void);

/* ---- models ---- */

typedef struct forge_load_options {
    size_t size;
    const char* device;     /* "auto" or "cpu" */
    const char* dtype;      /* activations and cache: "bf16", "f16" or "f32" */
    int32_t threads;        /* 0: one a core */
    int32_t context;        /* tokens a session may hold; 0: the model's, at most 4096 */
    int32_t sessions;       /* how many may exist at once; memory is reserved for them */
} forge_load_options;
FORGE_API void forge_load_options_init(forge_load_options* options);

/* path: a GGUF file, a .safetensors file or a model's folder. options: NULL for the defaults. */
FORGE_API forge_model* forge_model_load(const char* path, const forge_load_options* options);
/* Sessions keep their model alive: the order of freeing does not matter. */
FORGE_API void forge_model_free(forge_model* model);
FORGE_API int32_t forge_model_context(const forge_model* model);
FORGE_API int forge_model_can_chat(const forge_model* model);   /* 1: it has a chat template */

/* Writes at most `capacity` ids and returns how many there are in all, or -1. add_bos, special: as
 * forge tokenize --bos, --special. */
FORGE_API int64_t forge_tokenize(const forge_model* model, const char* text, int add_bos, int special,
                                 int32_t* ids, size_t capacity);
/* Writes at most `capacity` bytes (no final zero) and returns how many there are in all, or -1. */
FORGE_API int64_t forge_detokenize(const forge_model* model, const int32_t* ids, size_t count,
                                   char* text, size_t capacity);

/* ---- sessions ---- */

/* One conversation or text. What it shares with the prompt before is not computed again. */
FORGE_API forge_session* forge_session_new(const forge_model* model);
FORGE_API void forge_session_free(forge_session* session);
FORGE_API void forge_session_clear(forge_session* session);
FORGE_API int32_t forge_session_tokens(const forge_session* session);   /* in the context now */

/* ---- generation ---- */

typedef struct forge_generate_options {
    size_t size;
    float temperature;          /* 0: always the likeliest token */
    int32_t top_k;              /* 0: off */
    float top_p;                /* 1: off */
    float min_p;                /* 0: off */
    float typical_p;            /* 1: off */
    float repetition_penalty;   /* 1: off */
    float presence_penalty;     /* 0: off */
    float frequency_penalty;    /* 0: off */
    int32_t penalty_window;     /* last tokens that penalties count; -1: all */
    uint64_t seed;
    int32_t max_tokens;         /* -1: until the model stops or the context is full */
    const char* const* stop;    /* texts that end the answer */
    size_t stop_count;
    const char* variables;      /* JSON object of the chat template's variables, or NULL */
} forge_generate_options;
/* The model's own recommendation, or general defaults when model is NULL. */
FORGE_API void forge_generate_options_init(forge_generate_options* options, const forge_model* model);

typedef enum forge_piece { FORGE_ANSWER = 0, FORGE_REASONING = 1 } forge_piece;
/* Gets the text as it comes (not zero-terminated). Returns 0 to go on, anything else to stop. */
typedef int (*forge_callback)(void* user, forge_piece kind, const char* text, size_t length);

typedef enum forge_reason {
    FORGE_STOPPED = 0,      /* the model ended, or a stop text came */
    FORGE_LENGTH = 1,       /* max_tokens, or the context is full */
    FORGE_CANCELLED = 2     /* the callback said so */
} forge_reason;

typedef struct forge_result {
    size_t size;
    forge_reason reason;
    int32_t prompt_tokens, cached_tokens, new_tokens;
    double prompt_seconds, decode_seconds;
} forge_result;
FORGE_API void forge_result_init(forge_result* result);

typedef struct forge_message {
    const char* role;       /* "system", "user", "assistant" */
    const char* content;
} forge_message;

/* Continues a text. options, callback and result may be NULL. */
FORGE_API forge_status forge_generate(forge_session* session, const char* prompt, const forge_generate_options* options,
                                      forge_callback callback, void* user, forge_result* result);
/* Answers a conversation; all of it is given each time. */
FORGE_API forge_status forge_chat(forge_session* session, const forge_message* messages, size_t count,
                                  const forge_generate_options* options, forge_callback callback, void* user,
                                  forge_result* result);
/* The same for messages as a JSON list, with whatever members the template knows (tool calls, ...). */
FORGE_API forge_status forge_chat_json(forge_session* session, const char* messages, const forge_generate_options* options,
                                       forge_callback callback, void* user, forge_result* result);

#ifdef __cplusplus
}
#endif
#endif
