// Runs a part on a backend by itself: outputs poisoned, inputs written, outputs and what the cache got read back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "tune/case.h"

namespace forge::tune {

struct LoweredPart {
    Program program;
    std::vector<BufferRef> places;           // of the part's values
    // The launches of a site take this variant in steps of that bucket.
    void choose(const std::string& site, const VariantChoice& choice, std::span<const Weight> weights);
};
// max_outputs: of the program that the part is cut out of.
LoweredPart lower_part(const Backend& backend, const Subject& subject, std::span<const Weight> weights, const Part& part, int max_rows, int max_outputs);

struct Result {
    std::size_t width = 0;
    std::vector<float> values;               // [rows][width]: the output, then the keys and values that the row wrote
    std::vector<float> state;                // recurrent, of both slots, after the step
};

class Probe {
  public:
    // Throws what the backend's compiler throws.
    Probe(Backend& backend, const Subject& subject, const Part& part, const LoweredPart& lowered, std::span<const Weight> weights, std::shared_ptr<Cache> cache);
    // The cache is as fill_cache() left it.
    Result run(const Case& c);
    // Writes a case's inputs; steps can be submitted after it.
    void prepare(const Case& c);
    Executable& executable() { return *executable_; }
    std::uint64_t next_serial() { return ++serial_; }

  private:
    const Subject& subject_;
    const Part& part_;
    std::vector<BufferRef> places_;
    std::uint64_t arena_bytes_, serial_ = 0;
    std::shared_ptr<Cache> cache_;
    std::unique_ptr<Executable> executable_;
};

// What the plain kernels make of a case. Elements that were left out, to keep it short, are NaN: where the work of all is
// more than `budget` multiplications, rows and, of large matrices, columns of the output are sampled.
Result reference_run(const Subject& subject, const Part& part, const Case& c, double budget);

}  // namespace forge::tune
