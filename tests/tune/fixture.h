// A tiny model as the tuner sees it, timings that a test gives, and a backend whose variants can be wrong.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "backends/backend.h"
#include "base/thread_pool.h"
#include "model/bind.h"
#include "plan/passes.h"
#include "tune/tuner.h"

namespace forge::test {

// Opened, bound, planned and fused.
class TinySubject {
  public:
    // name: below tests/data ("models/qwen3-tied"). layout: that of `backend`.
    TinySubject(const std::string& name, WeightLayout layout);
    // few: rows of the one program, many of the other (0: none).
    tune::Subject on(Backend& backend, int few = 8, int many = 64, DType type = DType::bf16) const;
    Backend& reference() const { return *reference_; }
    ThreadPool& pool() const { return pool_; }
    const BoundModel& model() const { return *model_; }
    const Plan& plan() const { return plan_; }   // fused for the CPU
    Plan fused(PassTarget target, const std::vector<std::string>& off) const;

  private:
    mutable ThreadPool pool_{2};
    std::shared_ptr<const BoundModel> model_;
    Plan plan_;
    std::vector<CacheLayer> layers_;
    std::unique_ptr<Backend> reference_;
};

// Milliseconds by the variant's name; others take `otherwise`. Counts how often it is asked.
class GivenTimes final : public tune::Timer {
  public:
    explicit GivenTimes(std::map<std::string, double> milliseconds, double otherwise = 1) : milliseconds_(std::move(milliseconds)), otherwise_(otherwise) {}
    double seconds(const std::string& site, int rows, const std::string& variant, tune::Probe& probe, const tune::Case& c) override;
    int asked = 0;
    double factor = 1;   // of all

  private:
    std::map<std::string, double> milliseconds_;
    double otherwise_;
};

// What is wrong with a variant: called around a step of a program that holds launches of the faulty kernel.
struct Fault {
    std::string name;      // of the variant
    // Before: may change what the step reads; after: what it made. `launch` is the faulty one.
    std::function<void(Executable& e, const Program& p, const Launch& launch, const StepRows& step)> before = {}, after = {};
};

// A backend that offers, for launches of `kernel`, its one right way as "right" and each fault as a variant.
std::unique_ptr<Backend> faulty_backend(Backend& inner, const std::string& kernel, std::vector<Fault> faults);

// A backend that offers variants of `kernel` alone: its default and those of these names.
std::unique_ptr<Backend> narrow_backend(Backend& inner, const std::string& kernel, std::set<std::string> names);

// Changes elements of a bf16 operand: change(row, column, value).
void change_elements(Executable& e, const Operand& operand, int rows, std::int64_t cols, const std::function<float(int, std::int64_t, float)>& change);

// What is logged while it lives.
class CapturedLog {
  public:
    CapturedLog();
    ~CapturedLog();
    std::string text();   // and ends

  private:
    bool open_ = true;
};

}  // namespace forge::test
