#include "tempera/cli/lens_model.h"

#include <algorithm>
#include <filesystem>

#include "tempera/base/error.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/output.h"
#include "tempera/base/progress.h"
#include "tempera/eval/long_task.h"
#include "tempera/generate/generate.h"
#include "tempera/models/device.h"
#include "tempera/models/export.h"
#include "tempera/ops/torch.h"
#include "tempera/text/sequence_tokens.h"

namespace tempera::cli {
namespace {

// Of the states that a changed temperature goes on from: all layers of 2,048 tokens of a small
// model.
constexpr uint64_t kStateBytes = uint64_t{150} << 20;

models::LoadOptions options_of(const LensComputing& computing) {
  models::use_threads(computing.threads);
  return {.dtype = models::scalar_type(computing.dtype), .blocks = !computing.unpack};
}

std::string name_of(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  return name.empty() ? path : name;
}

// The text has exactly that many tokens with its answer.
eval::Request passkey_request(const text::Tokenizer& tokenizer, const LensTexts& texts) {
  const auto& task = *eval::find_long_task("passkey");
  const eval::LongTaskOptions options{
      .lengths = {texts.passkey}, .depths = {texts.depth}, .cases = 1, .seed = texts.seed};
  eval::check_long_options(task, options);
  const auto source = eval::open_source(task, options, tokenizer);
  const auto random =
      eval::case_stream(task, options, {.length = texts.passkey, .depth = texts.depth});
  const auto made =
      task.make(source, {.length = texts.passkey, .depth = texts.depth, .random = random});
  return made.requests.front();
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first);
}

}  // namespace

LensModel::LensModel(const std::string& model, const LensTexts& texts,
                     const LensComputing& computing, std::string out)
    : path_(model),
      name_(name_of(model)),
      out_(std::move(out)),
      computing_(computing),
      opened_(open_model(models::load_model(model, options_of(computing)))),
      texts_(sequences(texts)) {}

bool LensModel::decodes() const { return opened_.model->config().kind == nn::ModelKind::kDecoder; }

std::vector<lens::Sequence> LensModel::sequences(const LensTexts& texts) {
  const auto& tokenizer = tokenizer_of(opened_);
  if (texts.passkey > 0) return {hide_passkey(texts)};
  if (opened_.model->config().kind != nn::ModelKind::kEncoderDecoder) {
    if (texts.target)
      throw UsageError("--target is for encoder-decoders; the model reads --text alone");
    return {lens::read_sequence(tokenizer, texts.text, texts.origin, texts.most)};
  }
  if (!texts.target)
    throw UsageError(
        "the model is an encoder-decoder, which reads one text and writes another: give what it "
        "writes with --target FILE");
  // Its end is not read by the model that writes it.
  const text::SequenceTokens ids(tokenizer);
  lens::Sequence read, written;
  read.ids = encode_sequence(tokenizer, ids, texts.text);
  if (texts.most > 0) text::cut_sequence(read.ids, texts.most);
  written.ids = encode_sequence(tokenizer, ids, *texts.target);
  written.ids.insert(written.ids.begin(), ids.start);
  written.ids.pop_back();
  for (auto* sequence : {&read, &written}) {
    TEMPERA_CHECK(std::ssize(sequence->ids) <= lens::kMostTokens, "a text of ",
                  count_text(std::ssize(sequence->ids)), " tokens given; the lens looks at up to ",
                  count_text(lens::kMostTokens));
    sequence->pieces = lens::token_pieces(tokenizer, sequence->ids);
  }
  return {std::move(read), std::move(written)};
}

// The question with what the model answers.
lens::Sequence LensModel::hide_passkey(const LensTexts& texts) {
  const auto& tokenizer = tokenizer_of(opened_);
  nn::require_decoder(*opened_.model, "--passkey");
  const auto request = passkey_request(tokenizer, texts);
  lens::Sequence sequence;
  sequence.ids.assign(request.context.begin(), request.context.end());
  const int64_t asked = std::ssize(sequence.ids), digits = std::ssize(request.continuation);
  const std::vector<int64_t> wanted(request.continuation.begin(), request.continuation.end());
  std::vector<int64_t> given;
  lens::Passkey passkey;
  passkey.given = answer_to(sequence.ids, digits, &given);
  for (const auto& piece : lens::token_pieces(tokenizer, wanted)) passkey.wanted += piece;
  passkey.wanted = trimmed(passkey.wanted);
  // The row of a token writes the one behind it.
  sequence.ids.insert(sequence.ids.end(), given.begin(), given.end());
  sequence.pieces = lens::token_pieces(tokenizer, sequence.ids);
  passkey.places = lens::places_of(sequence, passkey.wanted, asked);
  TEMPERA_CHECK(!passkey.places.empty(), path_, ": the tokens of the text do not spell the number ",
                passkey.wanted, " that it hides");
  passkey.answer = {asked - 1, std::ssize(given)};
  passkey_ = std::move(passkey);
  return sequence;
}

// What the model writes behind the question, so many tokens of it.
std::string LensModel::answer_to(const std::vector<int64_t>& question, int64_t tokens,
                                 std::vector<int64_t>* ids) {
  const auto answer =
      generate::generate(*opened_.model, {question},
                         {.max_tokens = tokens, .window = 0, .sampler = {.temperature = 0}});
  const auto given = answer.front().ids();
  if (ids) *ids = given;
  std::string text;
  for (const auto& piece : lens::token_pieces(tokenizer_of(opened_), given)) text += piece;
  return trimmed(text);
}

lens::Subject LensModel::looked(const std::string& name, std::vector<lens::Sequence> texts,
                                const lens::LookOptions& options, bool shows_progress) {
  const auto& config = opened_.model->config();
  models::use_threads(computing_.threads);
  lens::Subject subject{.name = name,
                        .method = config.temperature.method,
                        .texts = std::move(texts),
                        .view = {},
                        .next_pieces = {}};
  auto output = standard_progress();
  if (!shows_progress) output.stream = nullptr;
  Progress progress("read " + name, lens::attention_count(config), "layers", output);
  lens::LookOptions asked = options;
  asked.report = [&](int64_t done) {
    stop_if_interrupted("stopped while a text was read");
    progress.update(done);
  };
  subject.view = lens::look(*opened_.model, lens::batch_of(subject.texts), asked);
  progress.finish();
  for (const auto& token : subject.view.next)
    subject.next_pieces.push_back(
        lens::token_pieces(tokenizer_of(opened_), {subject.texts.back().ids.back(), token.id})
            .back());
  subject.ended = !subject.view.next.empty() &&
                  std::ranges::count(opened_.end_tokens, subject.view.next.front().id) > 0;
  return subject;
}

lens::Subject LensModel::look() {
  auto subject = looked(name_, texts_, {.state_bytes = computing_.live ? kStateBytes : 0});
  subject.passkey = passkey_;
  return subject;
}

lens::Subject LensModel::look_at(const lens::Subject& other) {
  if (!passkey_) return look();
  const auto asked = other.passkey->answer.first + 1;
  const auto& own = texts_[0].pieces;
  // With other tokens it has its own text, which cannot stand beside the other one's.
  if (std::ssize(own) <= asked ||
      !std::equal(own.begin(), own.begin() + asked, other.texts[0].pieces.begin()))
    return look();
  texts_ = other.texts;
  passkey_ = other.passkey;
  const auto& ids = texts_[0].ids;
  passkey_->given = answer_to({ids.begin(), ids.begin() + asked}, passkey_->answer.count);
  return look();
}

lens::Subject LensModel::changed(const lens::Subject& as_it_is, const lens::Factors& factors) {
  auto subject = looked("what if", as_it_is.texts,
                        {.factors = factors, .losses = false, .as_it_is = &as_it_is.view},
                        /*shows_progress=*/false);
  subject.passkey = as_it_is.passkey;
  if (opened_.model->config().kind == nn::ModelKind::kEncoderDecoder) add_losses(subject);
  return subject;
}

void LensModel::add_losses(lens::Subject& subject) {
  models::use_threads(computing_.threads);
  lens::find_losses(*opened_.model, lens::batch_of(subject.texts).tokens[0], subject.view);
}

lens::Subject LensModel::read(const std::string& text) {
  TEMPERA_CHECK(offers().generate, name_, " writes no text behind a text: it is no decoder");
  return looked(name_, {lens::read_sequence(tokenizer_of(opened_), text, "the text", 0)},
                {.state_bytes = kStateBytes}, /*shows_progress=*/false);
}

lens::Subject LensModel::continued(const lens::Subject& subject) {
  TEMPERA_CHECK(offers().generate && !subject.view.next.empty(), name_,
                " writes no text behind a text: it is no decoder");
  TEMPERA_CHECK(!subject.ended, "the text has ended: its likeliest next token is an end");
  TEMPERA_CHECK(std::ssize(subject.texts[0].ids) < lens::kMostTokens, "the text has ",
                count_text(lens::kMostTokens), " tokens, and the lens looks at no more");
  lens::Sequence more;
  more.ids = subject.texts[0].ids;
  more.ids.push_back(subject.view.next.front().id);
  more.pieces = lens::token_pieces(tokenizer_of(opened_), more.ids);
  return looked(name_, {std::move(more)}, {.state_bytes = kStateBytes}, /*shows_progress=*/false);
}

std::string LensModel::write(const lens::Factors& factors) {
  TEMPERA_CHECK(!out_.empty(),
                "no place was given for the model; start the lens with --export FOLDER");
  NewOutput out(out_, NewOutput::Kind::kFolder);
  auto loaded = models::load_model(path_);
  loaded.model = lens::with_factors(*loaded.model, factors);
  models::export_folder(loaded, out, {});
  return out_;
}

lens::Offers LensModel::offers() const { return {.write = !out_.empty(), .generate = decodes()}; }

}  // namespace tempera::cli
