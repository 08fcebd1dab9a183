// A project's own header, which no translation may touch.
