#include "page.h"

namespace forge::server {

const std::string_view page_html = R"page(<!doctype html><title>Forge</title><p>The API is at <code>/v1</code>.</p>)page";

}  // namespace forge::server
