// Runs a GenerateRequest on a model and writes the answer through a protocol's Writer.
#pragma once

#include <memory>

#include "http/http.h"
#include "metrics.h"
#include "models.h"
#include "request.h"

namespace forge::server {

// The prompts of a request, rendered and tokenized.
std::vector<Prompt> build_prompts(const GenerateRequest& request, const TextModel& model);

// Error for everything that is wrong with the request, QueueFull where too many wait; nothing was written then. Otherwise the answer is
// written as it comes, and this returns before it is complete.
void generate(const std::shared_ptr<Served>& served, GenerateRequest request, std::shared_ptr<Writer> writer,
              std::shared_ptr<http::Reply> reply, Metrics& metrics, double load_seconds);

// Computes a token, so that the first request finds everything ready.
void warm_up(Served& served);

}  // namespace forge::server
