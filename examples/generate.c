/* Continues a text: generate MODEL "Once upon a time" */
#include <forge/forge.h>

#include <stdio.h>

static int show(void* user, forge_piece kind, const char* text, size_t length) {
    (void)user;
    (void)kind;
    fwrite(text, 1, length, stdout);
    fflush(stdout);
    return 0;
}

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: generate MODEL TEXT\n");
        return 2;
    }
    forge_model* model = forge_model_load(argv[1], NULL);
    forge_session* session = model ? forge_session_new(model) : NULL;
    if (!session) {
        fprintf(stderr, "error: %s\n", forge_last_error());
        forge_model_free(model);
        return 1;
    }
    forge_generate_options options;
    forge_generate_options_init(&options, model);
    options.max_tokens = 40;
    options.temperature = 0;
    forge_result result;
    forge_result_init(&result);
    const forge_status status = forge_generate(session, argv[2], &options, show, NULL, &result);
    if (status == FORGE_OK) {
        printf("\n");
        fprintf(stderr, "%d tokens in %.2f s\n", (int)result.new_tokens, result.decode_seconds);
    } else {
        fprintf(stderr, "error: %s\n", forge_last_error());
    }
    forge_session_free(session);
    forge_model_free(model);
    return status == FORGE_OK ? 0 : 1;
}
