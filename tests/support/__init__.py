"""What tests share: a toy framework, made records and profiles, and fakes of the vendors' libraries in C."""
