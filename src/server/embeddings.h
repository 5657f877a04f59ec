// Texts into vectors: what /v1/embeddings and /api/embed share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fields.h"
#include "runtime/batcher.h"

namespace forge::server {

struct Call;

struct EmbeddingRequest {
    std::string model;
    std::vector<std::string> texts;                   // or
    std::vector<std::vector<std::int32_t>> ids;
    std::optional<Pooling> pooling;                   // else what the file says, else the last token
    std::optional<std::size_t> dimensions;            // the first so many, scaled to length 1 again
    bool truncate = false;                            // a text that is too long loses its end; else 400
    std::optional<double> keep_alive;
};

struct EmbeddingAnswer {
    std::string model;
    std::vector<std::vector<float>> vectors;
    std::int64_t prompt_tokens = 0;
    double seconds = 0, load_seconds = 0;
};

// Called once, with all vectors, on a worker: the body of the answer.
using EmbeddingBody = std::function<std::string(const EmbeddingAnswer&)>;

// ApiError for everything that is wrong with the request; else the answer is sent when it is ready.
void embed(const Call& call, EmbeddingRequest request, EmbeddingBody body);

// "input": a text, texts, token ids or lists of these.
void read_input(Fields& fields, EmbeddingRequest& request);

// {"model", "input", ...} of OpenAI's API and of Ollama's.
void openai_embeddings(const Call& call);
void ollama_embed(const Call& call, bool old);   // old: /api/embeddings with one "prompt"

std::string vector_text(const std::vector<float>& vector);     // a JSON list
std::string base64(std::string_view bytes);

}  // namespace forge::server
