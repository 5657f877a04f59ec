#include "api/constraint.h"

#include <algorithm>

#include "base/error.h"

namespace forge {
namespace {

class Whole final : public TokenConstraint {
  public:
    Whole(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary) : matcher_(std::move(grammar), std::move(vocabulary)) {}
    const std::uint32_t* mask() override { return matcher_.mask(); }
    void accept(std::int32_t token) override {
        if (!matcher_.accept(token)) fail(ErrorKind::internal, "the token {} does not fit the grammar", token);
    }
    bool finished() const override { return matcher_.finished(); }
    std::vector<std::int32_t> forced() override { return matcher_.forced(); }

  private:
    Matcher matcher_;
};

class Lazy final : public TokenConstraint {
  public:
    Lazy(std::vector<Trigger> triggers, std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
        : triggers_(std::move(triggers)), vocabulary_(vocabulary), matcher_(std::move(grammar), std::move(vocabulary)) {
        for (const Trigger& t : triggers_) longest_ = std::max(longest_, t.text.size());
    }

    const std::uint32_t* mask() override { return active_ ? matcher_.mask() : nullptr; }

    void accept(std::int32_t token) override {
        if (active_) {
            if (!matcher_.accept(token)) fail(ErrorKind::internal, "the token {} does not fit the grammar", token);
            if (matcher_.finished()) sleep();
            return;
        }
        if (token < 0 || static_cast<std::size_t>(token) >= vocabulary_->size()) return;
        const std::string& bytes = vocabulary_->bytes(token);
        for (const char c : bytes)
            if (c != Grammar::special_begin && c != Grammar::special_end) heard_ += c;
        wake();
        if (!active_ && heard_.size() > 4 * longest_) heard_.erase(0, heard_.size() - 2 * longest_);
    }

    std::vector<std::int32_t> forced() override { return active_ ? matcher_.forced() : std::vector<std::int32_t>(); }

  private:
    void wake() {
        for (const Trigger& t : triggers_) {
            const std::size_t at = heard_.find(t.text);
            if (at == std::string::npos) continue;
            if (t.only_first && (begun_ || heard_.find_first_not_of(" \t\r\n") != at)) continue;
            // What came with it must fit too; a token may reach beyond it.
            matcher_.reset();
            const std::string special = Grammar::special_begin + t.text + Grammar::special_end;
            const std::string rest = heard_.substr(at + t.text.size());
            if (!(vocabulary_->special(t.text) ? matcher_.accept(special) : matcher_.accept(t.text)) || !matcher_.accept(rest)) continue;
            active_ = true;
            heard_.clear();
            if (matcher_.finished()) sleep();
            return;
        }
        if (heard_.find_first_not_of(" \t\r\n") != std::string::npos && heard_.size() >= longest_ + 8) begun_ = true;
    }

    void sleep() {
        active_ = false;
        begun_ = true;
        heard_.clear();
    }

    std::vector<Trigger> triggers_;
    std::shared_ptr<const Vocabulary> vocabulary_;
    Matcher matcher_;
    std::size_t longest_ = 0;
    std::string heard_;      // the end of the free text
    bool active_ = false, begun_ = false;
};

}  // namespace

std::shared_ptr<TokenConstraint> hold_to(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary) {
    return std::make_shared<Whole>(std::move(grammar), std::move(vocabulary));
}

std::shared_ptr<TokenConstraint> hold_after(std::vector<Trigger> triggers, std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary) {
    return std::make_shared<Lazy>(std::move(triggers), std::move(grammar), std::move(vocabulary));
}

}  // namespace forge
