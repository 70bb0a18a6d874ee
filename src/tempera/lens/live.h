#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tempera/http/router.h"
#include "tempera/lens/factors.h"
#include "tempera/lens/page_data.h"
#include "tempera/lens/subject.h"

namespace tempera::lens {

// The model behind a live page: the first of its subjects.
class LiveModel {
 public:
  virtual ~LiveModel() = default;

  // The same text, read with other temperatures. Its losses may come later.
  virtual Subject changed(const Subject& as_it_is, const Factors& factors) = 0;
  virtual void add_losses(Subject& subject) = 0;
  // Another text, and the text of a subject with its likeliest next token behind it. Throw for what
  // cannot be read.
  virtual Subject read(const std::string& text) = 0;
  virtual Subject continued(const Subject& subject) = 0;
  // Writes the model with these temperatures to the place that the user has named, and returns it.
  // Throws where that is not possible.
  virtual std::string write(const Factors& factors) = 0;
  virtual Offers offers() const = 0;
};

// The page as a server gives it: weights are computed when the page asks for them, a temperature
// can be changed, and a text can grow. Everything lies below a path that nobody guesses.
class LiveLens {
 public:
  // The model outlives the page.
  LiveLens(std::vector<Subject> subjects, LiveModel& model);

  // "/NAME/", where the page is.
  const std::string& path() const { return path_; }
  void operator()(const http::Request& request, http::Reply& reply) const {
    router_(request, reply);
  }

 private:
  using Subjects = std::shared_ptr<const std::vector<Subject>>;
  Subjects subjects() const;
  // What the page that asks has been shown; throws Refusal where that is no longer it.
  Subjects subjects_of(const http::Request& request) const;
  http::Response page(const http::Request& request);
  http::Response map(const http::Request& request);
  http::Response top(const http::Request& request);
  http::Response losses(const http::Request& request);
  http::Response what_if(const http::Request& request);
  http::Response write(const http::Request& request);
  http::Response read(const http::Request& request);
  http::Response grow(const http::Request& request);
  // From now on these are shown.
  http::Response show(std::vector<Subject> subjects);
  http::Response show(Subjects subjects);

  std::string path_;
  LiveModel& model_;
  http::Router router_;
  std::mutex computing_;  // one pass of the model at a time
  Subjects started_;
  mutable std::mutex mutex_;  // of what follows
  Subjects subjects_;
  int64_t shown_ = 0;  // counts what was shown
};

}  // namespace tempera::lens
