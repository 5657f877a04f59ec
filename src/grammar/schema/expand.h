// Schemas -> shapes: references followed, allOf merged, anyOf and oneOf spread out.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../pattern_automaton.h"
#include "reader.h"

namespace forge::grammar {

class Expander {
  public:
    Expander(SchemaReader& reader, bool open_objects) : reader_(reader), open_(open_objects) {}

    // A value fits the schemas when it fits one of these. None: nothing fits.
    std::vector<Shape> shapes(const Conjunction& schemas);

    // Whether a value fits.
    bool accepts(const Conjunction& schemas, const Json& value);
    bool accepts(const Shape& shape, const Json& value);
    // Known to fit nothing (or too deep to tell: then false).
    bool empty(const Conjunction& schemas);

    // The schemas for the member `key`. False: no such member may be there.
    bool member(const Shape& shape, const std::string& key, Conjunction& out);
    // Whether members may come whose names no schema lists.
    bool takes_others(const Shape& shape) const;

    // Which of the patterns match a text that ends there; kept, because schemas repeat them.
    const PatternAutomaton& automaton(const std::vector<std::string>& patterns, std::uint64_t needed);
    static std::uint64_t all_bits(std::size_t n) { return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1; }

    SchemaReader& reader() { return reader_; }

  private:
    std::vector<Shape> expand(int schema);
    std::vector<Shape> product(int schema, const char* keyword, const std::vector<Shape>& a, const std::vector<Shape>& b);
    void check_disjoint(int schema, const std::vector<Shape>& base, const std::vector<std::vector<Shape>>& branches);
    bool prune(Shape& shape);   // takes out types that nothing fits; false: nothing is left
    void spend(std::size_t work);

    SchemaReader& reader_;
    bool open_;
    // Looking at a member or an item: a schema may come up again there.
    struct Inner {
        explicit Inner(Expander& e) : expander(e) {
            ++expander.nesting_;
            outer.swap(expander.active_);
        }
        ~Inner() {
            --expander.nesting_;
            outer.swap(expander.active_);
        }
        Expander& expander;
        std::vector<int> outer;
    };

    std::vector<int> active_;   // being expanded, at this place of the value
    int nesting_ = 0;
    std::map<Conjunction, bool> emptiness_;
    std::map<std::pair<std::vector<std::string>, std::uint64_t>, PatternAutomaton> automata_;
    std::size_t spent_ = 0;
};

}  // namespace forge::grammar
