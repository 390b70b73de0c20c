"""Tables for print: cases by rows and columns, and the formats in which they and other tables are written."""
